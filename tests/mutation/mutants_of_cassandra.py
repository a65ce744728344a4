"""Bugs planted in the sink of Cassandra."""

from tests.mutation.mutant import Mutant

DATABASE = "src/penstock/sink/cassandra/database.py"
MARKS = "src/penstock/sink/cassandra/marker_store.py"
REPEATED = "src/penstock/sink/cassandra/duplicate_keys.py"
TABLE = "src/penstock/sink/cassandra/table_schema.py"
WRITING = "src/penstock/sink/cassandra/load.py"
IN_TASKS = "src/penstock/sink/cassandra/in_tasks.py"
OF_TASKS = "tests/live/test_cassandra_in_tasks.py"

OF_DELETES = "tests/live/test_cassandra_deletes.py"
OF_REFUSALS = "tests/live/test_cassandra_refusals.py"
OF_SINK = "tests/live/test_cassandra_publish.py"

MUTANTS_OF_CASSANDRA = (
    Mutant(
        bug=22,
        name="the-time-stamp-of-a-batch-in-cassandra-is-that-of-a-clock",
        file=MARKS,
        find="at_us = max(now_ms * 1000 + _LAST_OF_MILLISECOND, least_us)",
        replace="at_us = now_ms * 1000 + _LAST_OF_MILLISECOND",
        tests=(f"{OF_SINK}::test_a_clock_that_is_behind_delays_no_batch_behind_an_older_one",),
    ),
    Mutant(
        bug=22,
        name="every-try-of-a-batch-in-cassandra-has-a-time-stamp-of-its-own",
        file=MARKS,
        find="== (publication.position, digest)",
        replace="== ()",
        tests=(f"{OF_SINK}::test_another_driver_goes_on_with_the_stamp_that_a_dead_one_took",),
    ),
    Mutant(
        bug=35,
        name="a-column-of-cassandra-that-was-added-again-hides-a-decided-batch",
        file=MARKS,
        find="if is_stamped and self._stamp.at_us > hidden_us:",
        replace="if is_stamped:",
        tests=(f"{OF_SINK}::test_a_column_that_was_dropped_and_added_again_hides_no_value_of_a_decided_batch",),
    ),
    Mutant(
        bug=35,
        name="a-decided-batch-in-cassandra-is-told-to-take-another-key",
        file=TABLE,
        find="    if decided:",
        replace="    if False:",
        tests=("tests/attack/test_decided_columns.py::test_a_key_column_that_was_renamed_gets_its_name_back",),
    ),
    Mutant(
        bug=17,
        name="rows-that-cassandra-did-not-acknowledge-are-taken-for-written",
        file=WRITING,
        find="left = [part for chunk, error in failed for part in (_cut(chunk, 1) if is_too_large(error) else [chunk])]",
        replace="left = []",
        tests=(f"{OF_SINK}::test_after_a_lost_answer_it_is_written_again_and_the_marker_decides[rows-cut here-before]",),
    ),
    Mutant(
        bug=17,
        name="any-row-of-a-key-goes-into-cassandra",
        file=REPEATED,
        find="superseded.append(newest[values_of_key])",
        replace="superseded.append((number, row_hash))",
        tests=(f"{OF_SINK}::test_superseded_rows_are_found_in_any_order_and_amount",),
    ),
    Mutant(
        bug=22,
        name="a-deletion-in-cassandra-has-a-later-time-stamp-than-its-batch",
        file=WRITING,
        find="keys = [(at_us, *key)",
        replace="keys = [(at_us + 60_000_000, *key)",
        tests=(f"{OF_DELETES}::test_a_late_row_does_not_bring_back_what_a_later_batch_deleted",),
    ),
    Mutant(
        bug=22,
        name="a-key-of-cassandra-is-deleted-and-written-at-one-time-stamp",
        file=WRITING,
        find="self._delete(deleting, at_us)",
        replace="self._delete(rows, at_us)",
        tests=(f"{OF_DELETES}::test_a_late_row_does_not_bring_back_what_a_later_batch_deleted",),
    ),
    Mutant(
        bug=17,
        name="a-row-that-deletes-in-cassandra-counts-as-one-that-stays",
        file="src/penstock/sink/cassandra/sink.py",
        find="displaced=stamp.displaced + repeated.totals + deleting)",
        replace="displaced=stamp.displaced + repeated.totals)",
        tests=(f"{OF_DELETES}::test_a_late_row_does_not_bring_back_what_a_later_batch_deleted",),
    ),
    Mutant(
        bug=22,
        name="what-has-other-columns-in-cassandra-outlives-its-deletion",
        file=TABLE,
        find="    if target.deletes:\n        mine",
        replace="    if False:\n        mine",
        tests=(f"{OF_DELETES}::test_a_row_that_others_wrote_by_a_clock_that_is_ahead_is_deleted",),
    ),
    Mutant(
        bug=22,
        name="rows-are-deleted-where-cassandra-forgets-that-at-once",
        file=TABLE,
        find="found.grace_s < _LEAST_GRACE_S",
        replace="False",
        tests=(f"{OF_REFUSALS}::test_rows_are_deleted_only_where_nodes_remember_that_for_some_hours",),
    ),
    Mutant(
        bug=51,
        name="a-cluster-that-was-waited-for-is-a-failure-that-a-person-must-mend",
        file=DATABASE,
        find="            raise NotPublishedYet(\n",
        replace="            raise PublishFailed(\n",
        tests=(f"{OF_SINK}::test_a_node_that_stays_away_fails_the_batch_and_the_next_start_goes_on",),
    ),
    Mutant(
        bug=4,
        name="a-task-takes-the-numbers-of-superseded-rows-for-those-of-its-own-pieces",
        file=IN_TASKS,
        find="superseded[(superseded >= begin) & (superseded < end)] - begin",
        replace="superseded[(superseded >= begin) & (superseded < end)]",
        tests=(f"{OF_TASKS}::test_tasks_read_what_a_batch_replaces_and_then_write_it",),
    ),
    Mutant(
        bug=4,
        name="pieces-that-are-more-than-tasks-are-left-out",
        file=IN_TASKS,
        find="(at + 1) * len(pieces) // parts]",
        replace="at * len(pieces) // parts + 1]",
        tests=(f"{OF_TASKS}::test_more_pieces_than_tasks_are_shared_out",),
    ),
    Mutant(
        bug=4,
        name="tasks-write-at-a-time-stamp-of-their-own",
        file=IN_TASKS,
        find="writer.write(at_us=self.at_us)  # I2",
        replace="writer.write(at_us=self.at_us + id(self) % 9)",
        tests=(f"{OF_TASKS}::test_tasks_read_what_a_batch_replaces_and_then_write_it",),
    ),
)
