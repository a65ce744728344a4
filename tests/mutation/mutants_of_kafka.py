"""Bugs planted in the sink of Kafka."""

from tests.mutation.mutant import Mutant

LANE = "src/penstock/sink/kafka/lane.py"
MARKS = "src/penstock/sink/kafka/marker_store.py"
SENDING = "src/penstock/sink/kafka/lane_producer.py"
SINK = "src/penstock/sink/kafka/sink.py"

OF_LEDGERS = "tests/live/test_kafka_ledgers.py"
OF_STRAY_RECORDS = "test_a_record_of_somebody_else_among_the_markers_does_not_stop_the_sink_whose_they_are"
OF_OWN_SINKS = "tests/conformance/test_own_sinks.py"
OF_PUBLISHING = "tests/live/test_kafka_publish.py"
OF_REFUSALS = "tests/live/test_kafka_refusals.py"

PROJECTION = "src/penstock/stage/projection.py"
SHAPE = "src/penstock/sink/kafka/records.py"
TROUBLE = "src/penstock/sink/kafka/errors.py"
OF_OWN_ROWS = "tests/spark/test_stage_own_rows.py"

PREPARATION = "src/penstock/sink/kafka/preparation.py"
TOPICS = "src/penstock/sink/kafka/topics.py"
BROKER = "src/penstock/source/kafka/broker.py"
OF_LEADERS = "tests/unit/test_kafka_leaders.py"
COLUMNAR = "src/penstock/sink/kafka/columnar_producer.py"
OF_PRODUCERS = "tests/live/test_kafka_producers.py"

TOMBSTONES = "src/penstock/sink/kafka/tombstones.py"
OF_TOMBSTONES = "tests/live/test_kafka_tombstones.py"

OF_TASKS = "tests/live/test_kafka_in_tasks.py"

MUTANTS_OF_KAFKA = (
    Mutant(
        bug=1,
        name="a-task-that-runs-again-publishes-its-lane-again",
        file="src/penstock/sink/table/publication.py",
        find="    if marker.position >= publication.position:  # I2",
        replace="    if False:",
        tests=(f"{OF_TASKS}::test_a_task_that_is_run_again_sends_nothing",),
    ),
    Mutant(
        bug=6,
        name="each-attempt-of-a-task-has-a-transactional-id-of-its-own",
        file=LANE,
        find="        name = transactional_id(self._wanted.pipeline, self._wanted.sink, self.number)",
        replace="        name = transactional_id(self._wanted.pipeline, self._wanted.sink, self.number) + str(id(self))",
        tests=(f"{OF_TASKS}::test_of_two_attempts_at_once_the_older_is_fenced_and_learns_that_the_other_has_published",),
    ),
    Mutant(
        bug=13,
        name="what-tasks-answer-is-taken-for-published-without-their-markers",
        file=SINK,
        find="            require_shown(marks.get(at), share)  # I1",
        replace="            pass",
        tests=(f"{OF_TASKS}::test_what_a_task_reports_counts_only_if_its_marker_shows_it",),
    ),
    Mutant(
        bug=31,
        name="tasks-begin-before-all-lanes-are-known-to-be-of-this-ledger",
        file=SINK,
        find="            require_own(mark, shares[at])  # I2",
        replace="            pass",
        tests=(f"{OF_TASKS}::test_no_task_begins_where_another_ledger_has_a_lane",),
    ),
    Mutant(
        bug=17,
        name="a-tombstone-counts-by-the-value-that-it-does-not-have",
        file=TOMBSTONES,
        find="pc.if_else(deletes, row_hashes(records, self.row_digest), hashes)",
        replace="pc.if_else(deletes, hashes, hashes)",
        tests=(
            f"{OF_TOMBSTONES}::test_what_is_staged_of_a_tombstone_has_the_hash_of_what_a_topic_shows",
            f"{OF_TOMBSTONES}::test_a_tombstone_keeps_all_but_its_value",
        ),
    ),
    Mutant(
        bug=43,
        name="a-row-that-deletes-in-kafka-keeps-its-value",
        file=TOMBSTONES,
        find="if not pc.any(deletes).as_py():",
        replace="if True:",
        tests=(f"{OF_TOMBSTONES}::test_a_tombstone_keeps_all_but_its_value",),
    ),
    Mutant(
        bug=35,
        name="the-value-of-a-row-that-becomes-a-tombstone-has-to-fit-the-topic",
        file=TOMBSTONES,
        find="        yield _records(rows)",
        replace="        yield split_deletes(rows)[0]",
        tests=(f"{OF_TOMBSTONES}::test_a_value_that_is_not_written_need_not_fit",),
    ),
    Mutant(
        bug=17,
        name="a-tombstone-without-a-key-is-written",
        file=SHAPE,
        find="if self.deletes and pc.any(",
        replace="if False and pc.any(",
        tests=(f"{OF_TOMBSTONES}::test_a_row_deletes_by_its_key",),
    ),
    Mutant(
        bug=39,
        name="records-without-keys-are-taken-for-such-that-delete",
        file="src/penstock/sink/kafka/target.py",
        find="if deletes and KEY not in rows.names:",
        replace="if False:",
        tests=(f"{OF_TOMBSTONES}::test_a_row_deletes_by_its_key",),
    ),
    Mutant(
        bug=7,
        name="where-a-broker-lags-behind-its-end-is-that-of-the-markers",
        file=MARKS,
        find="            if offset is not None and offset >= (end if error is not None else end - 1):",
        replace="            if error is not None or (offset is not None and offset >= end - 1):",
        tests=("tests/unit/test_kafka_lagging.py",),
    ),
    Mutant(
        bug=7,
        name="a-topic-of-markers-that-nobody-leads-is-taken-for-an-empty-one",
        file=TOPICS,
        find="    if offset < 0:\n        raise KafkaException",
        replace="    if offset < -9999:\n        raise KafkaException",
        tests=(OF_LEADERS,),
    ),
    Mutant(
        bug=23,
        name="records-of-a-partition-that-nobody-leads-are-said-to-be-lost",
        file=BROKER,
        find="        self._require_led(found, least=least)\n",
        replace="",
        tests=(OF_LEADERS,),
    ),
    Mutant(
        bug=17,
        name="records-are-counted-by-the-hash-of-other-rows",
        file=PROJECTION,
        find="hashed = self.hashes[number] if self.own[number] else",
        replace="hashed = self.hashes[-1] if self.own[number] else",
        tests=(f"{OF_OWN_ROWS}::test_each_sink_gets_its_own_rows[utc-distributed-plain,all,some,again]",),
    ),
    Mutant(
        bug=17,
        name="records-are-marked-with-the-columns-of-the-pipeline",
        file=SINK,
        find="publication if own is None else replace(publication, schema=str(own))",
        replace="publication if own is None else replace(publication, schema=publication.schema)",
        tests=(f"{OF_PUBLISHING}::test_records_that_are_made_of_other_rows_go_on_after_a_restart",),
    ),
    Mutant(
        bug=17,
        name="json-depends-on-the-time-zone-of-the-session",
        file=SHAPE,
        find='    "timeZone": "\'UTC\'",\n',
        replace="",
        tests=(f"{OF_OWN_ROWS}::test_each_sink_gets_its_own_rows[elsewhere-driver-some,plain]",),
    ),
    Mutant(
        bug=4,
        name="a-right-that-is-missing-is-noticed-after-the-batch-was-decided",
        file=PREPARATION,
        find="[(topic, WRITE) for topic in topics] + ",
        replace="",
        tests=(f"{OF_REFUSALS}::test_a_right_that_is_missing_is_named",),
    ),
    Mutant(
        bug=5,
        name="a-wrong-password-is-told-as-silence",
        file=TROUBLE,
        find="    reason = of.heard() if code_of(raised) in _SILENCE else None",
        replace="    reason = of.heard() if code_of(raised) is None else None",
        tests=(f"{OF_REFUSALS}::test_why_nobody_answers_is_told_by_what_was_heard_beside",),
    ),
    Mutant(
        bug=5,
        name="a-producer-whose-commit-was-not-answered-is-used-on",
        file=LANE,
        find="        except BaseException:\n            self.drop()",
        replace="        except KeyboardInterrupt:\n            self.drop()",
        tests=(f"{OF_PUBLISHING}::test_after_a_lost_answer_the_producer_is_dropped_and_the_marker_decides",),
    ),
    Mutant(
        bug=15,
        name="rows-are-committed-before-their-marker",
        file=LANE,
        find="        return Loaded(rows=number, displaced=Totals())",
        replace="        self._commit()\n        return Loaded(rows=number, displaced=Totals())",
        tests=(f"{OF_PUBLISHING}::test_rows_become_visible_with_their_marker",),
    ),
    Mutant(
        bug=7,
        name="the-marker-is-read-while-a-transaction-hides-a-newer-one",
        file=LANE,
        find="        require_closed(self._clients, self._wanted.target.markers, self.number)\n",
        replace="",
        tests=(f"{OF_PUBLISHING}::test_a_marker_that_a_transaction_of_others_may_hide_is_not_read",),
    ),
    Mutant(
        bug=17,
        name="a-batch-is-divided-among-the-lanes-of-today",
        file=SINK,
        find="return int(str(note[LANES]))",
        replace="return self._wanted.lanes",
        tests=(f"{OF_PUBLISHING}::test_a_batch_keeps_the_lanes_that_it_was_staged_for[2]",),
    ),
    Mutant(
        bug=4,
        name="a-part-that-is-there-is-written-again",
        file=LANE,
        find="_chunks(_after(batches, there), self",
        replace="_chunks(_after(batches, 0), self",
        tests=(f"{OF_PUBLISHING}::test_a_batch_in_parts_goes_on_after_the_last_one_that_is_there[1000]",),
    ),
    Mutant(
        bug=6,
        name="a-transaction-that-failed-is-left-to-its-time-out",
        file=SENDING,
        find="if self._began_s is not None and not self._is_committing:",
        replace="if self._began_s is None:",
        tests=(f"{OF_PUBLISHING}::test_what_failed_before_the_commit_holds_no_reader_up",),
    ),
    Mutant(
        bug=2,
        name="a-topic-of-markers-that-was-made-anew-means-that-nothing-was-published",
        file=SINK,
        find="if found is None or found.identity != note[MARKERS]:",
        replace="if found is None:",
        tests=(f"{OF_PUBLISHING}::test_a_topic_of_markers_that_is_gone_is_never_taken_for_an_empty_one",),
    ),
    Mutant(
        bug=7,
        name="an-old-marker-is-taken-for-the-newest",
        file=MARKS,
        find="        width *= _WIDER",
        replace="        break",
        tests=(f"{OF_PUBLISHING}::test_the_newest_marker_is_found_below_what_was_aborted",),
    ),
    Mutant(
        bug=35,
        name="a-record-of-somebody-else-among-the-markers-stops-their-sink",
        file=MARKS,
        find="    if value is not None:\n        return decode_lane_marker(",
        replace="    if value is not None and foreign is None:\n        return decode_lane_marker(",
        tests=(f"{OF_LEDGERS}::{OF_STRAY_RECORDS}[in its lane]",),
    ),
    Mutant(
        bug=35,
        name="a-record-of-somebody-else-where-there-are-no-markers-stops-their-sink",
        file=MARKS,
        find=" and (lane == 0 or newest_mark(clients, wanted, 0) is None):",
        replace=":",
        tests=(f"{OF_LEDGERS}::{OF_STRAY_RECORDS}[in no lane]",),
    ),
    Mutant(
        bug=31,
        name="a-second-sink-takes-the-markers-of-another-one-for-its-own-topic",
        file=MARKS,
        find="    if foreign is not None and visible and ",
        replace="    if False and ",
        tests=(f"{OF_PUBLISHING}::test_two_sinks_cannot_share_their_markers",),
    ),
    Mutant(
        bug=17,
        name="records-are-never-read-back",
        file=SINK,
        find="        if self._wanted.keyed or self._wanted.target.shared or verification",
        replace="        if bool(marks) or verification",
        tests=("tests/conformance/test_kafka_conformance.py::TestKafka::test_damage_is_found[foreign-SpooledRig]",),
    ),
    Mutant(
        bug=17,
        name="the-record-for-which-there-was-no-room-is-passed-over",
        file=COLUMNAR,
        find="messages = messages[first:].copy()",
        replace="messages = messages[first + 1 :].copy()",
        tests=(f"{OF_PRODUCERS}::test_more_than_the_client_has_room_for_arrives_in_order",),
    ),
    Mutant(
        bug=17,
        name="rows-of-a-slice-are-taken-from-its-beginning",
        file=COLUMNAR,
        find="[column.offset : column.offset + len(column) + 1]",
        replace="[: len(column) + 1]",
        tests=(f"{OF_PRODUCERS}::test_values_and_keys_arrive_as_they_are",),
    ),
    Mutant(
        bug=17,
        name="a-key-that-is-null-is-sent-as-the-empty-one",
        file=COLUMNAR,
        find="        places[column.is_null().to_numpy(zero_copy_only=False)] = 0",
        replace="        pass",
        tests=(f"{OF_PRODUCERS}::test_values_and_keys_arrive_as_they_are",),
    ),
    Mutant(
        bug=5,
        name="nobody-looks-at-the-answer-to-a-commit",
        file=COLUMNAR,
        find="self._require(self._library.commit_transaction(self._client, int(timeout_s * 1000)))",
        replace="self._library.commit_transaction(self._client, int(timeout_s * 1000))",
        tests=(f"{OF_PRODUCERS}::test_a_record_that_the_broker_refuses_fails_the_commit",),
    ),
    Mutant(
        bug=6,
        name="a-transaction-that-was-forgotten-is-waited-for-again-and-again",
        file="src/penstock/sink/kafka/marker_store.py",
        find="    if hanging is not None:",
        replace="    if False:",
        tests=(f"{OF_LEDGERS}::test_a_start_names_the_transaction_that_no_broker_ends_and_the_command_that_does",),
    ),
    Mutant(
        bug=31,
        name="a-mark-does-not-carry-the-ledger",
        file="src/penstock/sink/table/publication.py",
        find="        ledger_id=publication.ledger_id,\n",
        replace="",
        tests=("tests/live/test_older_markers.py::test_it_is_altered_once_and_then_of_one_ledger[sqlite]",),
    ),
    Mutant(
        bug=31,
        name="each-lane-has-a-ledger-of-its-own",
        file="src/penstock/sink/kafka/sink.py",
        find="        if lanes > 1 or self._wanted.keyed:",
        replace="        if self._wanted.keyed:",
        tests=(f"{OF_LEDGERS}::test_a_ledger_of_fewer_lanes_finds_whose_the_topic_is",),
    ),
    Mutant(
        bug=31,
        name="without-transactions-rows-come-before-the-ledger",
        file="src/penstock/sink/kafka/sink.py",
        find="        if lanes > 1 or self._wanted.keyed:",
        replace="        if lanes > 1:",
        tests=(f"{OF_LEDGERS}::test_two_ledgers_of_one_name_do_not_both_deliver_by_a_keyed_sink",),
    ),
    Mutant(
        bug=31,
        name="a-part-of-a-batch-is-nobody's",
        file="src/penstock/sink/kafka/lane.py",
        find="self._opened().of_ledger(publication.ledger_id), part=part",
        replace="self._opened(), part=part",
        tests=(f"{OF_LEDGERS}::test_a_part_of_a_batch_carries_it_too",),
    ),
    Mutant(
        bug=31,
        name="who-is-fenced-while-it-claims-a-lane-does-not-read-whose-it-is",
        file="src/penstock/sink/kafka/lane.py",
        find="            if newer is None or newer.marker.ledger_id is None:",
        replace="            if True:",
        tests=(f"{OF_LEDGERS}::test_a_driver_that_prepared_before_a_newer_one_delivered_reads_whose_the_lanes_are",),
    ),
    Mutant(
        bug=16,
        name="a-keyed-driver-that-was-stopped-writes-its-older-marker",
        file="src/penstock/sink/kafka/lane.py",
        find="            self._require_unmoved()\n",
        replace="            pass\n",
        tests=(f"{OF_LEDGERS}::test_a_keyed_driver_that_was_stopped_puts_no_older_marker_over_a_newer_one",),
    ),
    Mutant(
        bug=16,
        name="a-keyed-driver-that-was-stopped-while-it-claimed-writes-its-older-marker",
        file="src/penstock/sink/kafka/lane.py",
        find="                self._mark = replaces\n",
        replace="                pass\n",
        tests=(f"{OF_LEDGERS}::test_a_keyed_driver_that_was_stopped_while_it_claimed_puts_no_older_marker_there",),
    ),
    Mutant(
        bug=16,
        name="a-keyed-driver-trusts-the-marker-that-it-read-first",
        file="src/penstock/sink/kafka/lane.py",
        find="            elif self._wanted.keyed:",
        replace="            elif False:",
        tests=(f"{OF_LEDGERS}::test_a_keyed_driver_reads_the_marker_before_each_batch",),
    ),
    Mutant(
        bug=31,
        name="an-idempotent-sink-of-ones-own-writes-rows-before-its-ledger-is-known",
        file="src/penstock/sink/own/sink.py",
        find="            if self.idempotent:",
        replace="            if False:",
        tests=(f"{OF_OWN_SINKS}::test_a_crash_between_rows_and_mark_leaves_the_target_to_the_ledger_that_wrote_the_rows",),
    ),
    Mutant(
        bug=31,
        name="rows-of-cassandra-are-written-before-its-marker-has-the-ledger",
        file="src/penstock/sink/cassandra/marker_store.py",
        find="        claim = (1 if publication.ledger_id is None else NAMED, publication.ledger_id)",
        replace="        claim = (1, None)",
        tests=("tests/live/test_cassandra_ledgers.py::test_the_marker_takes_the_ledger_before_the_first_row_is_written",),
    ),
    Mutant(
        bug=35,
        name="a-record-without-a-key-is-decided-for-a-compacted-topic",
        file=PREPARATION,
        find="compacted=frozenset(name for name, topic in place.topics.items() if topic.is_compacted)",
        replace="compacted=frozenset()",
        tests=("tests/live/test_kafka_refusals.py::test_tasks_refuse_a_row_without_a_key_for_a_compacted_topic",),
    ),
    Mutant(
        bug=35,
        name="a-topic-that-takes-larger-records-than-the-client-stops-its-sink",
        file=PREPARATION,
        find="    return min(largest, _CLIENT_RECORD_BYTES)",
        replace="    return largest",
        tests=(f"{OF_REFUSALS}::test_a_topic_may_take_larger_records_than_the_client",),
    ),
    Mutant(
        bug=37,
        name="a-topic-that-is-gone-is-told-as-brokers-that-do-not-answer",
        file="src/penstock/sink/kafka/sink.py",
        find="                require_topics_exist(self._clients, self._wanted)\n",
        replace="",
        tests=("tests/live/test_kafka_refusals.py::test_a_topic_that_was_deleted_under_a_decided_batch_is_told_as_that",),
    ),
)
