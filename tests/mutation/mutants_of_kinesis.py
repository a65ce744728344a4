"""Bugs planted where Kinesis is read: another order, another batch when it is read again, loss that nobody hears of."""

from tests.mutation.mutant import Mutant

FETCH, SCAN = "src/penstock/source/kinesis/fetch.py", "src/penstock/source/kinesis/scan.py"
STREAM, LINEAGE = "src/penstock/source/kinesis/stream.py", "src/penstock/source/kinesis/lineage.py"
SOURCE = "tests/unit/test_kinesis_source.py"

MUTANTS_OF_KINESIS = (
    Mutant(
        bug=23,
        name="kinesis-reads-a-child-before-its-parents-ended",
        file=LINEAGE,
        find="all(parent in known and known[parent].is_finished for parent in parents)",
        replace="all(parent in known for parent in parents)",
        tests=(f"{SOURCE}::test_a_child_is_read_in_a_later_batch_than_the_end_of_its_parents",),
    ),
    Mutant(
        bug=23,
        name="kinesis-passes-over-a-shard-that-is-closed",
        file=LINEAGE,
        find="for name in listed if name in known and not known[name].is_finished}",
        replace="for name in listed if name in known and not (known[name].is_finished or listed[name].is_closed)}",
        tests=(f"{SOURCE}::test_random_reshards_and_restarts_lose_and_repeat_nothing_and_keep_the_order",),
    ),
    Mutant(
        bug=23,
        name="kinesis-forgets-a-finished-shard-that-is-still-listed",
        file=LINEAGE,
        find="if not shard.is_finished or name in listed}",
        replace="if not shard.is_finished}",
        tests=(f"{SOURCE}::test_a_closed_shard_stays_in_the_offset_as_long_as_it_is_listed",),
    ),
    Mutant(
        bug=23,
        name="kinesis-does-not-tell-of-records-that-expired",
        file=SCAN,
        find="if self._start.seen_ms - _MARGIN_MS <= kept_from_ms:",
        replace="if self._start.seen_ms < 0:",
        tests=(f"{SOURCE}::test_records_that_expired_are_refused_with_numbers",),
    ),
    Mutant(
        bug=23,
        name="kinesis-does-not-miss-a-shard-that-expired",
        file=STREAM,
        find="        known = self._without_lost(known, listed)\n",
        replace="",
        tests=(f"{SOURCE}::test_a_shard_that_expired_unread_is_refused",),
    ),
    Mutant(
        bug=23,
        name="kinesis-does-not-note-a-quiet-shard-as-seen",
        file=STREAM,
        find="            if shard.seen_ms - before.seen_ms > stale_ms:\n                return True\n",
        replace="",
        tests=(f"{SOURCE}::test_a_quiet_stream_is_no_loss_while_somebody_looks",),
    ),
    Mutant(
        bug=23,
        name="kinesis-takes-a-child-for-seen-when-its-parent-ended-late",
        file=SCAN,
        find="        is_seen_now = is_at_tip and not is_finished",
        replace="        is_seen_now = is_at_tip",
        tests=(f"{SOURCE}::test_a_child_that_waited_for_a_late_reader_of_its_parent_is_not_taken_for_seen",),
    ),
    Mutant(
        bug=18,
        name="kinesis-reads-beyond-the-planned-end",
        file=FETCH,
        find="if reached < int(each.number) <= last]",
        replace="if reached < int(each.number)]",
        tests=(f"{SOURCE}::test_a_batch_that_is_read_again_has_the_same_records_whatever_came_since",),
    ),
    Mutant(
        bug=18,
        name="kinesis-reads-what-is-left-of-a-planned-batch",
        file=FETCH,
        find='            _require_allowed(settings, piece, f"the first that is there is {page.records[0].number}")\n',
        replace="            pass\n",
        tests=(f"{SOURCE}::test_a_batch_whose_records_expired_is_refused_though_later_ones_are_there",),
    ),
    Mutant(
        bug=23,
        name="kinesis-goes-on-with-another-stream-of-the-name",
        file=STREAM,
        find="        if stream.created_ms != known.created_ms:\n",
        replace="        if stream.created_ms < known.created_ms:\n",
        tests=(f"{SOURCE}::test_a_stream_made_anew_is_refused",),
    ),
    Mutant(
        bug=23,
        name="kinesis-trusts-an-old-look-at-the-stream",
        file=STREAM,
        find="        self._require_same(known, is_new=True)  # an iterator",
        replace="        self._require_same(known)  # an iterator",
        tests=(f"{SOURCE}::test_a_stream_made_anew_is_refused[False]",),
    ),
)
