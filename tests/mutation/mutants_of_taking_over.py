"""Bugs planted where a query that exists is taken over."""

from tests.mutation.mutant import Mutant

ORIGINS = "src/penstock/run/sink_origins.py"
TAKING_OVER = "src/penstock/run/taking_over.py"
ADOPTION = "src/penstock/sink/parquet/directory/adoption.py"
CONTENT = "src/penstock/sink/parquet/adopted_content.py"
SUMMARY = "src/penstock/commit/summary.py"
OWNERSHIP = "src/penstock/sink/parquet/ownership.py"

TESTS = "tests/unit/test_taking_over.py"
OF_SINK = f"{TESTS}::TestSparksFileSink"

MUTANTS_OF_TAKING_OVER = (
    Mutant(
        bug=19,
        name="the-checkpoint-of-a-query-that-is-handed-over-is-dropped",
        file="src/penstock/run/given_writer.py",
        find="    if given is not None and not _is_same(given, checkpoint):\n",
        replace="    if False:\n",
        tests=("tests/unit/test_given_writer.py::test_a_checkpoint_of_its_own_is_refused",),
    ),
    Mutant(
        bug=19,
        name="a-sink-begins-beside-files-of-other-partitions",
        file=OWNERSHIP,
        find="filter(_is_partitioned, there) if area.claimed_by() is None else ()",
        replace="()",
        tests=("tests/unit/test_parquet_verify.py::test_files_of_a_job_that_are_kept_have_the_sinks_partitions",),
    ),
    Mutant(
        bug=19,
        name="a-file-that-came-later-keeps-an-account-without-rows-from-starting",
        file=OWNERSHIP,
        find="filter(_is_partitioned, there) if area.claimed_by() is None else ()",
        replace="filter(_is_partitioned, there)",
        tests=("tests/unit/test_parquet_verify.py::test_a_file_of_others_in_an_account_that_has_no_rows_yet_refuses_no_start",),
    ),
    Mutant(
        bug=1,
        name="a-batch-in-the-log-of-sparks-file-sink-that-spark-did-not-commit-is-done-again",
        file=ORIGINS,
        find="    if newest == committed + 1 and position.is_replay:",
        replace="    if newest == committed + 1 and position.is_replay:\n        return\n    if False:",
        tests=(f"{OF_SINK}::test_a_batch_that_is_in_the_log_and_not_committed",),
    ),
    Mutant(
        bug=19,
        name="files-of-failed-batches-stay-where-readers-find-them",
        file=ADOPTION,
        find="        for name in others:",
        replace="        for name in ():",
        tests=(f"{OF_SINK}::test_the_account_begins_with_the_files_of_committed_batches",),
    ),
    Mutant(
        bug=19,
        name="readers-with-spark-pass-over-what-is-delivered-beside-the-log-of-its-file-sink",
        file=OWNERSHIP,
        find='pass over new files."""\n    log = area.spark_log()',
        replace='pass over new files."""\n    log = None',
        tests=(f"{OF_SINK}::test_a_start_without_it_is_refused_and_names_it",),
    ),
    Mutant(
        bug=34,
        name="a-file-that-an-account-was-taken-over-with-is-lost-unseen",
        file=CONTENT,
        find="    gone = frozenset(adopted.sizes.keys() - there.keys() - set(removed))",
        replace="    gone = frozenset[str]()",
        tests=(f"{OF_SINK}::test_verify_finds_what_happened_to_a_file_since",),
    ),
    Mutant(
        bug=2,
        name="what-the-query-did-after-the-copy-of-its-checkpoint-is-delivered-twice",
        file=TAKING_OVER,
        find="                if target.latest_commit_id() == self.origin.latest_commit_id():",
        replace="                if True:",
        tests=(f"{TESTS}::test_the_query_ran_once_more_between_two_tries",),
    ),
    Mutant(
        bug=37,
        name="a-sink-that-is-ahead-refuses-every-batch-of-an-adopted-checkpoint",
        file=SUMMARY,
        find="if goes_on or newest == FOR_EVER}",
        replace="if True}",
        tests=("tests/unit/test_commit_rewind.py::TestAdoption::test_the_sink_takes_every_batch_of_it",),
    ),
    Mutant(
        bug=16,
        name="a-sink-that-a-rewind-left-behind-takes-part-again-though-nobody-knows-what-it-has",
        file=SUMMARY,
        find="        ahead={**before.ahead, **dict.fromkeys(names, FOR_EVER)},",
        replace="        ahead={**before.ahead, **dict.fromkeys(names, BatchId(0))},",
        tests=("tests/unit/test_rewind.py::test_a_rewind_whose_sink_is_gone_for_good_ends_without_it",),
    ),
    Mutant(
        bug=26,
        name="events-that-a-fork-needs-are-removed-before-its-first-start",
        file="src/penstock/run/savepoints.py",
        find="        journals.register(needed)",
        replace="        journals.gone(needed)",
        tests=("tests/unit/test_rewind_of_journals.py::TestForks::test_what_it_reads_first_stays_from_then_on",),
    ),
)
