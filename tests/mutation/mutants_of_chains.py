"""Bugs planted where a table of another pipeline is read: batches come too early, twice, not at all, or from another ledger."""

from tests.mutation.mutant import Mutant

BATCHES = "src/penstock/commit/table_batches.py"
STREAM = "src/penstock/run/chain/stream.py"
OFFSET = "src/penstock/run/chain/offset.py"
FETCH = "src/penstock/run/chain/fetch.py"
SOURCE = "tests/unit/test_chain_source.py"
BACKFILLED = "tests/unit/test_chain_backfilled.py"

MUTANTS_OF_CHAINS = (
    Mutant(
        bug=19,
        name="a-batch-is-read-before-every-account-shows-it",
        file=BATCHES,
        find="            if not self._is_published(batch, look):\n                return\n",
        replace="",
        tests=(f"{SOURCE}::test_a_batch_is_read_once_every_account_shows_it",),
    ),
    Mutant(
        bug=1,
        name="batches-that-were-taken-back-are-read-beside-those-in-their-place",
        file=BATCHES,
        find="if batch is not None and (batch.is_backfilled or not any(to < position < act for act, to in acts)):",
        replace="if batch is not None:",
        tests=(f"{SOURCE}::test_batches_that_were_taken_back_are_read_as_they_come_again",),
    ),
    Mutant(
        bug=1,
        name="a-reader-of-what-was-taken-back-reads-it-again",
        file=STREAM,
        find="        if found is None or not taken:\n            return\n",
        replace="        if found is not None or not taken:\n            return\n",
        tests=(f"{SOURCE}::test_a_reader_of_batches_that_were_taken_back_is_told_which",),
    ),
    Mutant(
        bug=31,
        name="the-ledger-that-a-source-reads-is-not-compared",
        file=STREAM,
        find="and at.ledger_id != tail.summary.ledger_id:",
        replace="and False:",
        tests=(f"{SOURCE}::test_another_ledger_is_refused",),
    ),
    Mutant(
        bug=31,
        name="a-copy-of-the-ledger-that-went-on-by-itself-is-read-on",
        file=STREAM,
        find="and at.nonce is not None and entry.nonce != at.nonce",
        replace="and at.nonce is None",
        tests=(f"{SOURCE}::test_an_older_copy_of_the_ledger_and_one_that_went_on_by_itself_are_refused",),
    ),
    Mutant(
        bug=23,
        name="a-first-batch-of-a-table-begins-where-a-new-query-would",
        file=OFFSET,
        find="    return end.begin if start is None or start.begin != end.begin else start.position\n",
        replace="    return end.begin if start is None else start.position\n",
        tests=(f"{SOURCE}::test_a_first_batch_that_is_planned_again_reads_the_same",),
    ),
    Mutant(
        bug=23,
        name="batches-that-a-ledger-forgot-are-passed-over",
        file=BATCHES,
        find="                raise self._forgotten(position, tail)\n",
        replace="                return None\n",
        tests=(f"{SOURCE}::test_batches_that_the_ledger_has_forgotten_are_refused_with_numbers",),
    ),
    Mutant(
        bug=23,
        name="a-query-begins-behind-what-a-ledger-forgot",
        file=STREAM,
        find="        if oldest > 1 and rows and self._settings.fails_on_loss:",
        replace="        if oldest > 1 and rows and not self._settings.fails_on_loss:",
        tests=(f"{SOURCE}::test_batches_that_the_ledger_has_forgotten_are_refused_with_numbers",),
    ),
    Mutant(
        bug=23,
        name="a-file-that-is-gone-is-passed-over",
        file=FETCH,
        find="        if piece.fails_on_loss:\n            raise _gone(piece, file) from None\n",
        replace="        return\n",
        tests=(f"{SOURCE}::test_an_account_that_is_not_mounted_is_waited_for",),
    ),
    Mutant(
        bug=36,
        name="a-file-that-was-written-anew-is-read",
        file=FETCH,
        find="        if found != file.rows and (found or piece.fails_on_loss):",
        replace="        if found < 0:",
        tests=(f"{SOURCE}::test_a_file_that_was_written_anew_is_not_read_as_what_was_decided",),
    ),
    Mutant(
        bug=23,
        name="a-column-that-the-stream-lacks-is-left-out",
        file=STREAM,
        find="        if not surplus:\n            return\n",
        replace="        if surplus:\n            return\n",
        tests=(f"{SOURCE}::test_a_column_that_comes_while_a_query_runs_ends_it_and_is_read_by_the_next",),
    ),
    Mutant(
        bug=2,
        name="of-two-batches-of-one-number-the-older-one-is-begun-with",
        file=BATCHES,
        find="            if isinstance(entry.body, Adopted) and not entry.body.gaps:\n                return None\n",
        replace="",
        tests=(f"{BACKFILLED}::test_a_number_of_an_older_checkpoint_names_no_batch",),
    ),
)
