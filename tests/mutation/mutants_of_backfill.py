"""Bugs planted in backfills."""

from tests.mutation.mutant import Mutant

BACKFILL = "src/penstock/commit/backfill.py"
OF_BACKFILL = "tests/unit/test_commit_backfill.py"

MUTANTS_OF_BACKFILL = (
    Mutant(
        bug=4,
        name="the-sweep-takes-what-a-backfill-decided",
        file="src/penstock/commit/publication.py",
        find="    kept = (*(() if newest is None else (newest,)), *waiting)\n",
        replace="    kept = () if newest is None else (newest,)\n",
        tests=(f"{OF_BACKFILL}::test_what_a_failed_call_decided_is_published_by_the_next",),
    ),
    Mutant(
        bug=5,
        name="a-backfill-goes-on-without-what-was-decided-before",
        file=BACKFILL,
        find="    recovered = coordinator.publish_backfilled(sink)  # I1\n",
        replace="    recovered = None\n",
        tests=(f"{OF_BACKFILL}::test_what_a_failed_call_decided_is_published_by_the_next",),
    ),
    Mutant(
        bug=19,
        name="a-backfill-gives-what-it-gave-before",
        file=BACKFILL,
        find="is_in = progress is not None and progress.first <= entry.position <= progress.through",
        replace="is_in = False",
        tests=(f"{OF_BACKFILL}::test_batches_come_in_their_order",),
    ),
    Mutant(
        bug=5,
        name="a-sink-with-a-part-of-its-past-goes-on",
        file=BACKFILL,
        find="if progress is not None and not progress.ended:",
        replace="if progress is not None and False:",
        tests=(
            f"{OF_BACKFILL}::test_a_start_with_the_sink_is_refused_until_the_backfill_has_ended_and_the_driver_goes_on_behind_it",
        ),
    ),
    Mutant(
        bug=19,
        name="the-driver-does-not-know-what-a-backfill-gave",
        file="src/penstock/commit/publication.py",
        find="Position(0) if backfill is None else backfill.newest)",
        replace="Position(0))",
        tests=(
            f"{OF_BACKFILL}::test_a_start_with_the_sink_is_refused_until_the_backfill_has_ended_and_the_driver_goes_on_behind_it",
        ),
    ),
    Mutant(
        bug=1,
        name="what-was-taken-back-is-lacking-too",
        file="src/penstock/commit/backfill.py",
        find="in standing(_require_tells(ledger, sink)):",
        replace="in _require_tells(ledger, sink):",
        tests=("tests/unit/test_commit_rewind.py::test_a_sink_lacks_each_batch_that_stands_once",),
    ),
    Mutant(
        bug=1,
        name="a-sink-that-kept-batches-is-given-them-again",
        file="src/penstock/commit/backfill.py",
        find="        if isinstance(oldest.body, Rewound) and sink in oldest.body.kept:\n",
        replace="        if False:\n",
        tests=("tests/unit/test_commit_rewind.py::test_a_sink_that_was_kept_is_given_nothing_once_more",),
    ),
    Mutant(
        bug=1,
        name="a-sink-that-may-have-kept-batches-is-given-them-again",
        file="src/penstock/commit/backfill.py",
        find="    if oldest is not None and oldest.summary.rewound_at is not None and sink in oldest.summary.totals:\n",
        replace="    if False:\n",
        tests=("tests/unit/test_commit_rewind.py::test_a_sink_that_may_have_been_kept_is_given_nothing_once_more",),
    ),
    Mutant(
        bug=1,
        name="a-rewind-goes-behind-a-backfill",
        file="src/penstock/commit/rewind.py",
        find="        if isinstance(entry.body, Backfilled):\n",
        replace="        if False:\n",
        tests=("tests/unit/test_commit_backfill.py::test_a_rewind_does_not_go_behind_it",),
    ),
    Mutant(
        bug=4,
        name="a-sink-has-to-know-what-it-was-given-before-a-long-backfill",
        file="src/penstock/commit/publication.py",
        find="given[sink.name].newest > newest.position]",
        replace="not given]",
        tests=(f"{OF_BACKFILL}::test_a_sink_that_was_filled_needs_not_know_the_newest_batch_any_more",),
    ),
    Mutant(
        bug=4,
        name="what-was-decided-after-a-backfill-is-taken-for-published",
        file="src/penstock/commit/publication.py",
        find="given[sink.name].newest > newest.position]",
        replace="given]",
        tests=(f"{OF_BACKFILL}::test_a_sink_that_was_filled_needs_not_know_the_newest_batch_any_more",),
    ),
)
