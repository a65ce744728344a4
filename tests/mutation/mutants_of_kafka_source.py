"""Bugs planted in the source that is read from Kafka."""

from tests.mutation.mutant import Mutant

GAPS = "src/penstock/source/kafka/gaps.py"
OF_GAPS = "tests/unit/test_kafka_gaps.py"
READER = "src/penstock/source/kafka/reader"
OF_PLAN, OF_FETCH = "tests/unit/test_kafka_reader_plan.py", "tests/unit/test_kafka_reader_fetch.py"
OF_INPUT = "tests/unit/test_kafka_input.py"
OF_LEADERS = "tests/unit/test_kafka_leaders.py"
OF_OPTIONS = "tests/unit/test_spec_kafka.py"

MUTANTS_OF_KAFKA_SOURCE = (
    Mutant(
        bug=23,
        name="a-topic-that-was-created-again-is-taken-for-the-old-one",
        file=GAPS,
        find="known.topic_id != now.topic_id",
        replace="False",
        tests=(f"{OF_GAPS}::test_every_kind_is_found_with_its_offsets",),
    ),
    Mutant(
        bug=23,
        name="one-expired-record-is-none",
        file=GAPS,
        find="if first < kept.low:",
        replace="if first < kept.low - 1:",
        tests=(f"{OF_GAPS}::test_every_kind_is_found_with_its_offsets",),
    ),
    Mutant(
        bug=23,
        name="all-of-a-gap-is-noted-with-each-batch-before-it",
        file=GAPS,
        find="end=min(gap.end, below)",
        replace="end=gap.end",
        tests=(f"{OF_GAPS}::test_a_gap_by_retention_is_shared_out_among_batches",),
    ),
    Mutant(
        bug=23,
        name="partitions-that-were-added-begin-where-they-are-now",
        file="src/penstock/source/kafka/watch.py",
        find="**dict.fromkeys(end.get(topic, {}), 0), ",
        replace="**end.get(topic, {}), ",
        tests=(f"{OF_GAPS}::test_a_partition_that_was_added_begins_with_its_first_record",),
    ),
    Mutant(
        bug=23,
        name="rows-of-aborted-transactions-come-out-unless-somebody-says-no",
        file="src/penstock/source/kafka/options.py",
        find="added = {ISOLATION: COMMITTED} | ",
        replace="added = {} | ",
        tests=(f"{OF_OPTIONS}::test_only_committed_rows_are_read_unless_said_otherwise",),
    ),
    Mutant(
        bug=23,
        name="a-client-of-kafka-that-failed-is-asked-again",
        file="src/penstock/source/kafka/watch.py",
        find="            self._brokers.pop(name, None)\n",
        replace="",
        tests=("tests/unit/test_kafka_gaps.py::test_a_client_that_failed_is_not_asked_again",),
    ),
    Mutant(
        bug=23,
        name="the-reader-goes-on-in-a-topic-that-was-created-again",
        file=f"{READER}/stream.py",
        find="if old != new:",
        replace="if False:",
        tests=(f"{OF_PLAN}::test_a_topic_that_does_not_continue_is_not_gone_on_with",),
    ),
    Mutant(
        bug=23,
        name="a-task-reads-another-topic-of-that-name",
        file=f"{READER}/fetch.py",
        find="if topic_id is None or topic_id != (piece.topic_id or topic_id):",
        replace="if topic_id is None:",
        tests=(f"{OF_FETCH}::test_another_topic_of_that_name_is_not_read",),
    ),
    Mutant(
        bug=23,
        name="a-topic-that-is-created-again-under-a-task-goes-unseen",
        file=f"{READER}/fetch.py",
        find="        _require_same(piece, clients.broker.topic_id(piece.topic))\n",
        replace="",
        tests=(f"{OF_FETCH}::test_a_topic_that_is_created_again_while_it_is_read_is_noticed",),
    ),
    Mutant(
        bug=23,
        name="a-task-begins-with-the-first-record-there-is",
        file=f"{READER}/fetch.py",
        find="if piece.first < kept.low and settings.fails_on_loss:",
        replace="if False:",
        tests=(f"{OF_FETCH}::test_records_that_are_gone_are_an_error_unless_they_may_be_passed_over",),
    ),
    Mutant(
        bug=23,
        name="a-fetch-that-fell-out-of-the-log-begins-anew",
        file=f"{READER}/fetch.py",
        find='"auto.offset.reset": "error"',
        replace='"auto.offset.reset": "earliest"',
        tests=(f"{OF_FETCH}::test_records_that_go_while_they_are_read_are_an_error",),
    ),
    Mutant(
        bug=17,
        name="a-task-reads-on-behind-the-end-of-its-piece",
        file=f"{READER}/fetch.py",
        find="if record.offset() < piece.end]",
        replace="if record]",
        tests=(f"{OF_FETCH}::test_a_piece_ends_before_its_end_whatever_stands_behind",),
    ),
    Mutant(
        bug=17,
        name="a-first-batch-that-comes-again-begins-elsewhere",
        file=f"{READER}/plan.py",
        find="begins = end.began if start.is_first and end.began is not None else start.positions",
        replace="begins = start.positions",
        tests=(f"{OF_PLAN}::test_a_first_batch_that_is_read_again_begins_where_it_did",),
    ),
    Mutant(
        bug=1,
        name="what-the-first-batch-noted-of-its-beginning-holds-for-the-next",
        file=f"{READER}/plan.py",
        find="end.began if start.is_first and end.began is not None else start.positions",
        replace="start.positions if end.began is None else end.began",
        tests=(f"{OF_PLAN}::test_an_empty_batch_behind_the_first_reads_nothing_again",),
    ),
    Mutant(
        bug=17,
        name="what-comes-after-the-start-belongs-to-available-now",
        file=f"{READER}/stream.py",
        find="max(min(kept.high, until.get(number, 0)), start.get(number, 0))",
        replace="kept.high",
        tests=(f"{OF_PLAN}::test_nothing_that_comes_later_is_read_once_it_is_to_stop",),
    ),
    Mutant(
        bug=6,
        name="a-batch-is-planned-beyond-an-open-transaction",
        file=f"{READER}/stream.py",
        find="settled=self._settings.is_committed",
        replace="settled=False",
        tests=(f"{OF_FETCH}::test_a_batch_ends_before_an_open_transaction",),
    ),
    Mutant(
        bug=6,
        name="a-task-waits-for-a-record-where-a-transaction-ended",
        file=f"{READER}/fetch.py",
        find='"enable.partition.eof": True',
        replace='"enable.partition.eof": False',
        tests=(f"{OF_FETCH}::test_marks_and_aborted_records_take_offsets_and_keep_nobody_waiting",),
    ),
    Mutant(
        bug=23,
        name="a-topic-that-was-moved-keeps-the-id-of-the-old-one",
        file="src/penstock/kafkaoffset.py",
        find=" if topic not in moves}",
        replace="}",
        tests=("tests/unit/test_kafka_offset.py::test_a_topic_that_is_moved_loses_its_notes",),
    ),
    Mutant(
        bug=23,
        name="a-start-by-time-stamp-takes-a-missing-leader-for-no-record-yet",
        file="src/penstock/source/kafka/broker.py",
        find="least=_NO_RECORD_YET)",
        replace="least=-1001)",
        tests=(f"{OF_LEADERS}::test_a_time_stamp_is_asked_for_again_while_nobody_leads_the_partition",),
    ),
    Mutant(
        bug=1,
        name="a-topic-that-was-out-of-sight-is-read-once-more",
        file="src/penstock/run/kafka_input.py",
        find="            self._require_undelivered(batch, seen)\n",
        replace="",
        tests=(f"{OF_INPUT}::test_what_was_delivered_is_not_read_again",),
    ),
)
