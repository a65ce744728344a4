"""Bugs planted where batches are taken back and done again."""

from tests.mutation.mutant import Mutant

COORDINATOR = "src/penstock/commit/coordinator.py"
PUBLICATION = "src/penstock/commit/publication.py"
REWINDING = "src/penstock/commit/rewind.py"
SUMMARY = "src/penstock/commit/summary.py"
VERIFYING = "src/penstock/commit/verification.py"
DIRECTORY = "src/penstock/sink/parquet/directory/area.py"
TAKING_BACK = "src/penstock/sink/parquet/taking_back.py"
ACT = "src/penstock/run/rewind.py"

OF_LEDGER = "tests/unit/test_commit_rewind.py"
OF_ACCOUNTS = "tests/unit/test_rewind.py"

MUTANTS_OF_REWIND = (
    Mutant(
        bug=16,
        name="a-batch-that-was-taken-back-is-recognised-all-the-same",
        file=PUBLICATION,
        find="    for entry in standing(ledger.newest_first()):",
        replace="    for entry in ledger.newest_first():",
        tests=(f"{OF_LEDGER}::test_a_batch_that_was_taken_back_is_found_no_more",),
    ),
    Mutant(
        bug=16,
        name="what-was-taken-back-stands-for-a-sink-that-lost-it",
        file=PUBLICATION,
        find="        if isinstance(entry.body, Rewound) and sink not in entry.body.kept:",
        replace="        if isinstance(entry.body, Rewound) and sink is None:",
        tests=(f"{OF_LEDGER}::test_what_a_sink_has_is_what_stands_for_it",),
    ),
    Mutant(
        bug=16,
        name="the-first-batch-after-a-rewind-takes-its-own-marker-for-a-copys",
        file=PUBLICATION,
        find="    return max(summary.published_at or Position(0), summary.rewound_at or Position(0), replayed_at or Position(0))",
        replace="    return max(summary.published_at or Position(0), replayed_at or Position(0))",
        tests=(f"{OF_LEDGER}::test_the_first_publication_after_it_passes_the_marker_of_what_was_taken_back",),
    ),
    Mutant(
        bug=16,
        name="a-run-starts-in-the-middle-of-a-rewind",
        file=REWINDING,
        find="    if at is None or at == except_at:",
        replace="    if True:",
        tests=(f"{OF_LEDGER}::test_no_other_run_starts_until_it_is_carried_out",),
    ),
    Mutant(
        bug=16,
        name="a-sink-that-is-ahead-gets-its-batches-again",
        file=COORDINATOR,
        find="            staged=tuple(piece for piece in staged.pieces if piece.sink not in ahead),",
        replace="            staged=staged.pieces,",
        tests=(f"{OF_LEDGER}::test_a_sink_that_is_kept_skips_the_batches_until_it_is_level",),
    ),
    Mutant(
        bug=16,
        name="a-sink-that-is-ahead-is-not-compared",
        file=COORDINATOR,
        find="                require_repeated(batch, summary=self.summary, sinks=self._sinks, ledger=self._ledger)\n",
        replace="",
        tests=(f"{OF_LEDGER}::test_a_batch_with_other_offsets_is_refused_while_a_sink_is_ahead",),
    ),
    Mutant(
        bug=16,
        name="a-batch-is-looked-for-that-sinks-have-forgotten",
        file=COORDINATOR,
        find="        since = max(self.summary.rewound_at or 0, self.summary.replayed_at or 0)",
        replace="        since = self.summary.replayed_at or 0",
        tests=(f"{OF_LEDGER}::test_the_batch_that_was_rewound_to_is_not_published_again",),
    ),
    Mutant(
        bug=16,
        name="a-sink-stays-ahead-for-ever",
        file=SUMMARY,
        find=" if decision.batch.batch_id <= newest}",
        replace="}",
        tests=(f"{OF_LEDGER}::test_a_sink_that_is_kept_skips_the_batches_until_it_is_level",),
    ),
    Mutant(
        bug=16,
        name="a-sink-that-is-ahead-is-left-behind-by-the-next-rewind",
        file=REWINDING,
        find="        if sink not in kept:\n",
        replace="        if False:\n",
        tests=(f"{OF_LEDGER}::test_a_sink_that_is_ahead_stays_ahead_in_another_rewind",),
    ),
    Mutant(
        bug=16,
        name="a-rewind-goes-behind-an-adoption",
        file=REWINDING,
        find="        if isinstance(entry.body, Adopted):",
        replace="        if False:",
        tests=(f"{OF_LEDGER}::test_it_does_not_go_behind_an_adoption_or_what_is_forgotten",),
    ),
    Mutant(
        bug=16,
        name="verify-expects-what-was-taken-back",
        file=VERIFYING,
        find="self._ledger.read(rewound_since(self._ledger, position, tail=tail) or position)",
        replace="self._ledger.read(position)",
        tests=(f"{OF_LEDGER}::test_what_a_sink_has_is_what_stands_for_it",),
    ),
    Mutant(
        bug=16,
        name="rows-that-were-rewritten-elsewhere-stay",
        file=TAKING_BACK,
        find="        if gone:\n",
        replace="        if False:\n",
        tests=(f"{OF_ACCOUNTS}::test_a_file_that_is_not_where_it_was_published_refuses_it",),
    ),
    Mutant(
        bug=16,
        name="files-that-were-removed-on-purpose-count-twice",
        file=SUMMARY,
        find="Totals() - totals) for sink, account, totals in taken",
        replace="Totals()) for sink, account, totals in taken",
        tests=(f"{OF_ACCOUNTS}::test_a_file_that_is_not_where_it_was_published_refuses_it",),
    ),
    Mutant(
        bug=16,
        name="a-rewind-is-recorded-as-done-before-the-sinks-are",
        file=ACT,
        find="            sink.take_back(taken)",
        replace="            pass",
        tests=(f"{OF_ACCOUNTS}::test_later_batches_are_taken_back_and_done_again",),
    ),
    Mutant(
        bug=16,
        name="rows-that-were-taken-back-are-counted-out-twice",
        file="src/penstock/sink/table/batch_column.py",
        find="    if markers.batch_at(publication) is None:",
        replace="    if False:",
        tests=("tests/unit/test_batch_column.py::test_batches_are_taken_back",),
    ),
    Mutant(
        bug=16,
        name="rows-that-do-not-say-their-batch-are-left-in-a-rewind",
        file="src/penstock/sink/table/batch_column.py",
        find="    if found != taken.totals.rows:",
        replace="    if False:",
        tests=("tests/unit/test_batch_column.py::test_a_row_that_somebody_deleted_is_seen_before",),
    ),
    Mutant(
        bug=16,
        name="a-rewind-leaves-rows-that-replaced-others",
        file="src/penstock/sink/lake/taking_back.py",
        find="or snapshot.content(taken.pipeline, taken.sink) is not None:",
        replace="and False:",
        tests=("tests/unit/test_lake_taken_back.py::test_a_table_in_which_rows_replaced_others_is_refused",),
    ),
    Mutant(
        bug=16,
        name="events-that-are-needed-once-more-are-left-to-be-removed",
        file=ACT,
        find="            self._hold_events()",
        replace="            pass",
        tests=("tests/unit/test_rewind_of_journals.py::test_what_is_needed_once_more_is_kept_in_the_journals",),
    ),
    Mutant(
        bug=16,
        name="a-journal-that-came-later-is-read-from-where-it-was-released",
        file="src/penstock/source/journal/journals.py",
        find="each.source: {**_begins_in(each.end), **delivered.get(each.source, {})}",
        replace="each.source: delivered.get(each.source, {})",
        tests=("tests/unit/test_rewind_of_journals.py::test_a_journal_that_came_after_the_batch_is_read_from_where_it_began",),
    ),
    Mutant(
        bug=16,
        name="a-rewind-is-finished-without-a-sink-that-has-batches-to-lose",
        file=ACT,
        find="            if name not in sinks:\n",
        replace="            if False:\n",
        tests=(f"{OF_ACCOUNTS}::test_a_sink_that_left_the_file_in_the_middle_is_not_passed_over",),
    ),
    Mutant(
        bug=16,
        name="another-checkpoint-is-set-back",
        file=ACT,
        find="        if not self.way.replaces:\n",
        replace="        if False:\n",
        tests=(f"{OF_ACCOUNTS}::test_another_checkpoint_refuses_it",),
    ),
    Mutant(
        bug=16,
        name="a-sink-that-was-away-is-level-by-numbers-alone",
        file=SUMMARY,
        find="        ahead={**ahead, **dict.fromkeys(astray, FOR_EVER)},",
        replace="        ahead=ahead,",
        tests=(f"{OF_LEDGER}::test_a_sink_that_is_back_after_other_batches_came_in_the_place_of_what_it_kept_gets_none",),
    ),
    Mutant(
        bug=16,
        name="what-a-rewind-took-is-accepted-as-removed",
        file="src/penstock/commit/removal.py",
        find="        if tail.summary.rewound_at != rewound_at:",
        replace="        if False:",
        tests=("tests/unit/test_commit_removal.py::test_what_a_rewind_took_meanwhile_was_not_removed_on_purpose",),
    ),
    Mutant(
        bug=16,
        name="rows-of-before-a-column-was-wider-are-counted-out-as-they-were-decided",
        file="src/penstock/sink/table/batch_column.py",
        find="    if marker.schema is None:\n",
        replace="    if True:\n",
        tests=("tests/unit/test_batch_column.py::test_batches_of_before_a_column_was_wider_are_taken_back",),
    ),
    Mutant(
        bug=16,
        name="a-run-that-slept-releases-what-a-rewind-holds",
        file="src/penstock/run/open_delivery.py",
        find="            self.coordinator.require_newest()\n        except PenstockError as error:\n            return (f",
        replace="            pass\n        except PenstockError as error:\n            return (f",
        tests=("tests/unit/test_rewind_of_journals.py::test_a_run_that_slept_releases_nothing",),
    ),
)
