"""Bugs planted in the source that is read from Kafka."""

from tests.mutation.mutant import Mutant

GAPS = "src/penstock/source/kafka/gaps.py"
OF_GAPS = "tests/unit/test_kafka_gaps.py"
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
)
