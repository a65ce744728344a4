"""Bugs planted in what a start and the commands make of ledger, checkpoint and settings."""

from tests.mutation.mutant import Mutant

CONTINUATION = "src/penstock/run/continuation.py"

OF_OPERATIONS = "tests/unit/test_run_operations.py"

MUTANTS_OF_RUN = (
    Mutant(
        bug=37,
        name="an-adoption-takes-the-sources-in-the-order-of-the-file",
        file=CONTINUATION,
        find="if is_renamed or not decided else decided\n",
        replace="\n",
        tests=(f"{OF_OPERATIONS}::test_adopting_takes_the_sources_in_the_order_of_the_query_not_of_the_file",),
    ),
    Mutant(
        bug=37,
        name="a-source-that-is-read-twice-is-in-the-way-of-an-adoption",
        file=CONTINUATION,
        find="    with suppress(SourcesChanged):\n",
        replace="    with suppress(CheckpointMissing):\n",
        tests=(f"{OF_OPERATIONS}::test_the_checkpoint_of_a_query_that_reads_a_source_twice_can_be_adopted",),
    ),
    Mutant(
        bug=37,
        name="an-adoption-does-not-say-that-the-checkpoint-is-of-another-query",
        file=CONTINUATION,
        find="    if position.query_id != summary.query_id:\n        runtime.checkpoint.offsets(",
        replace="    if False:\n        runtime.checkpoint.offsets(",
        tests=(f"{OF_OPERATIONS}::test_the_checkpoint_of_a_query_that_reads_a_source_twice_can_be_adopted",),
    ),
)
