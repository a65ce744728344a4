"""Bugs planted in what verifies, copies and changes Spark's checkpoints: damage that is not seen, starts that are too early."""

from tests.mutation.mutant import Mutant

COPYING = "src/penstock/checkpoint/copying.py"
CONTENT = "src/penstock/checkpoint/state_content.py"
CHAIN = "src/penstock/checkpoint/state_chain.py"
ORDER = "src/penstock/checkpoint/log_order.py"
ACTING = "src/penstock/checkpoint/acting.py"
REWIND = "src/penstock/checkpoint/rewind_plan.py"
GC = "src/penstock/checkpoint/gc_plan.py"
REPAIR = "src/penstock/checkpoint/repair_plan.py"
ACTS_OF_RUN = "src/penstock/run/checkpoint_acts.py"
OF_ACTS = "tests/upgrade/test_checkpoint_acts.py"
OF_RUN = "tests/unit/test_run_checkpoint_acts.py"
BESIDE_SPARK = "tests/spark/test_acts_beside_spark.py"
KILLED = "test_an_act_that_is_killed_anywhere_is_finished_by_the_same_command_or_taken_back"
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
        find="    _require_verified(source, target, but={place for place, table in tables.items() if table.verified})\n",
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
    Mutant(
        bug=24,
        name="a-named-source-that-was-taken-out-is-damage",
        file=ORDER,
        find="        elif not entry.named and before.offsets",
        replace="        elif before.offsets",
        tests=(f"{OF_CLI}::test_a_source_may_be_taken_out_if_it_has_a_name[named-codes0]",),
    ),
    Mutant(
        bug=24,
        name="a-checkpoint-is-changed-while-it-can-be-started",
        file=ACTING,
        find="        files.write(_METADATA, unfinished_text(begun.folder))\n",
        replace="        pass\n",
        tests=(f"{OF_ACTS}::{KILLED}[spark-3.5-files]",),
    ),
    Mutant(
        bug=24,
        name="a-checkpoint-can-be-started-before-its-act-is-noted",
        file=ACTING,
        find="""    _note(files, begun.folder, _DONE_FILE, instead_of=_UNDONE_FILE)
    _release(files, begun.folder, "after", begun.record.metadata_after)
""",
        replace="""    _release(files, begun.folder, "after", begun.record.metadata_after)
    _note(files, begun.folder, _DONE_FILE, instead_of=_UNDONE_FILE)
""",
        tests=(f"{OF_ACTS}::{KILLED}[spark-3.5-files]",),
    ),
    Mutant(
        bug=24,
        name="an-act-on-a-checkpoint-is-taken-back-over-what-spark-did-since",
        file=ACTING,
        find="        _require_as_left(files, begun)\n",
        replace="",
        tests=(f"{OF_ACTS}::test_an_act_is_not_taken_back_once_spark_has_gone_on",),
    ),
    Mutant(
        bug=24,
        name="a-rewound-checkpoint-keeps-the-state-of-later-batches",
        file=REWIND,
        find="            if file.version > to_batch + 1:\n",
        replace="            if file.version > to_batch + 2:\n",
        tests=(f"{OF_ACTS}::test_a_rewound_checkpoint_is_what_it_was_after_that_batch[spark-4.3-aggregation]",),
    ),
    Mutant(
        bug=24,
        name="gc-collects-state-that-a-rewind-within-reach-needs",
        file=GC,
        find="        for version in range(max(oldest, 1), newest + 2):\n",
        replace="        for version in range(newest, newest + 2):\n",
        tests=(f"{OF_ACTS}::test_gc_leaves_what_a_restart_and_every_rewind_within_reach_needs[spark-4.3-aggregation]",),
    ),
    Mutant(
        bug=24,
        name="a-rewind-goes-back-to-an-entry-that-a-repair-made-up",
        file=REPAIR,
        find='            remove_with_checksum(self._draft, f"commits/{missing}", commits, ',
        replace='            remove_with_checksum(self._draft, "commits/none", commits, ',
        tests=(f"{OF_ACTS}::test_a_hole_before_a_committed_batch_is_filled_and_no_rewind_goes_back_to_it",),
    ),
    Mutant(
        bug=1,
        name="a-repair-throws-away-the-plan-of-a-decided-batch",
        file=REPAIR,
        find="self._decided.next_batch_id == newest and",
        replace="self._decided.next_batch_id >= newest and",
        tests=(f"{OF_RUN}::test_the_plan_of_a_decided_batch_is_not_thrown_away",),
    ),
    Mutant(
        bug=2,
        name="a-rewind-goes-behind-what-the-ledger-recognises",
        file=ACTS_OF_RUN,
        find="    if not expected - 1 <= upcoming <= expected:\n",
        replace="    if upcoming > expected:\n",
        tests=(f"{OF_RUN}::test_batches_that_the_ledger_would_not_recognise_are_not_planned_anew",),
    ),
    Mutant(
        bug=16,
        name="a-checkpoint-is-changed-beside-its-driver",
        file=ACTS_OF_RUN,
        find='        if driver is not None and driver.state == "running" and not is_this:\n',
        replace='        if driver is not None and driver.state == "none" and not is_this:\n',
        tests=(f"{OF_RUN}::test_beside_a_driver_that_runs_every_act_is_refused[rewind]",),
    ),
    Mutant(
        bug=28,
        name="spark-goes-on-writing-state-behind-an-act",
        file="src/penstock/spark/active_queries.py",
        find='            getattr(stores, "MODULE$").stop()\n',
        replace='            getattr(stores, "MODULE$")\n',
        tests=(f"{BESIDE_SPARK}::test_a_query_that_has_ended_writes_no_state_behind_an_act",),
    ),
    Mutant(
        bug=16,
        name="a-checkpoint-is-changed-beside-a-query-of-this-process",
        file=ACTS_OF_RUN,
        find="        if runtime.checkpoint.query_id() in active:\n",
        replace="        if False:\n",
        tests=(f"{BESIDE_SPARK}::test_an_act_is_refused_while_the_query_runs_in_this_process",),
    ),
    Mutant(
        bug=24,
        name="beside-an-empty-ledger-any-torn-plan-counts-as-not-decided",
        file=ACTS_OF_RUN,
        find="next_batch_id=BatchId(0), ends=",
        replace="next_batch_id=runtime.checkpoint.latest_offsets_id() or BatchId(0), ends=",
        tests=(f"{OF_RUN}::test_beside_an_empty_ledger_no_plan_of_a_later_batch_is_thrown_away",),
    ),
)
