"""Bugs planted in what verifies and copies Spark's checkpoints: damage that is not seen, copies that start too early."""

from tests.mutation.mutant import Mutant

COPYING = "src/penstock/checkpoint/copying.py"
CONTENT = "src/penstock/checkpoint/state_content.py"
CHAIN = "src/penstock/checkpoint/state_chain.py"
ORDER = "src/penstock/checkpoint/log_order.py"
OF_COPIES = "tests/upgrade/test_checkpoint_copy.py"
OF_CLI = "tests/unit/test_cli_checkpoint.py"

MUTANTS_OF_CHECKPOINTS = (
    Mutant(
        bug=24,
        name="an-interrupted-copy-of-a-checkpoint-starts",
        file=COPYING,
        find='    target.write("metadata", UNFINISHED)\n',
        replace='    target.write("metadata", source.read("metadata") or b"")\n',
        tests=(f"{OF_COPIES}::test_a_copy_that_is_interrupted_does_not_start_and_can_be_finished[spark-4.1-changelog]",),
    ),
    Mutant(
        bug=24,
        name="a-copy-of-a-checkpoint-is-not-verified",
        file=COPYING,
        find="    _require_verified(source, target)\n",
        replace="",
        tests=(f"{OF_COPIES}::test_what_cannot_be_gone_on_from_is_not_copied",),
    ),
    Mutant(
        bug=24,
        name="a-checkpoint-is-copied-over-another",
        file=COPYING,
        find="    _require_empty(target)\n",
        replace="",
        tests=(f"{OF_COPIES}::test_nothing_is_written_where_something_is",),
    ),
    Mutant(
        bug=24,
        name="a-copy-of-a-checkpoint-holds-what-an-attempt-left",
        file=COPYING,
        find='    _remove_others(target, {*places, "metadata"})\n',
        replace="",
        tests=(f"{OF_COPIES}::test_what_an_earlier_attempt_left_is_removed",),
    ),
    Mutant(
        bug=24,
        name="a-copy-of-a-running-query-holds-a-planned-batch",
        file=COPYING,
        find="if one <= batch_id)",
        replace="if one <= batch_id + 1)",
        tests=(f"{OF_COPIES}::test_a_copy_of_a_running_query_ends_at_the_newest_committed_batch[spark-4.0-files]",),
    ),
    Mutant(
        bug=24,
        name="state-that-is-cut-off-passes",
        file=CONTENT,
        find='    raise Unreadable("is cut off" if data else "is empty")',
        replace='    return b"".join(blocks) + _ENDED',
        tests=(f"{OF_COPIES}::test_what_cannot_be_gone_on_from_is_not_copied",),
    ),
    Mutant(
        bug=24,
        name="an-older-entry-in-the-place-of-a-newer-one-passes",
        file=ORDER,
        find="            if earlier != batch_id:",
        replace="            if earlier > batch_id:",
        tests=(f"{OF_CLI}::test_an_older_entry_is_no_newer_one",),
    ),
)
