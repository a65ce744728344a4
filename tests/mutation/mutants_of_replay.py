"""Bugs planted in replays of the quarantine, in backfills that put rows aside, and in the counts of `verify`."""

from tests.mutation.mutant import Mutant

PUBLICATION = "src/penstock/commit/publication.py"
COORDINATOR = "src/penstock/commit/coordinator.py"
OF_REPLAY = "tests/unit/test_commit_replay.py"
BEHIND_BACKFILL = (
    "tests/unit/test_commit_backfill_aside.py::"
    "test_what_was_replayed_stays_in_tables_that_are_read_behind_a_backfill_of_another_sink"
)
OF_ASIDE = "tests/unit/test_commit_backfill_aside.py"
OF_RECORDS = "tests/unit/test_quarantined_record.py"
OF_COUNTS = "tests/unit/test_row_counts.py"
FINISHED = f"{OF_REPLAY}::test_what_a_failed_replay_decided_is_published_by_the_next_start"
ONCE = f"{OF_REPLAY}::test_a_replay_gives_rows_once_and_the_driver_goes_on_behind_it"

MUTANTS_OF_REPLAY = (
    Mutant(
        bug=4,
        name="a-start-goes-on-without-what-a-replay-decided",
        file=COORDINATOR,
        find="            replay = self._publish_replay()  # I1\n",
        replace="            replay = {}\n",
        tests=(FINISHED,),
    ),
    Mutant(
        bug=4,
        name="the-sweep-takes-what-a-replay-decided",
        file=PUBLICATION,
        find="    positions |= set() if summary.replaying_at is None else {summary.replaying_at}\n",
        replace="",
        tests=(f"{OF_REPLAY}::test_a_replay_that_is_killed_at_any_step_is_finished_once",),
    ),
    Mutant(
        bug=5,
        name="a-start-without-a-sink-drops-what-a-replay-decided-for-it",
        file=PUBLICATION,
        find="    absent = sorted({piece.sink for piece in decision.staged} - {sink.name for sink in sinks} - own)\n",
        replace="    absent = list[SinkName]()\n",
        tests=(FINISHED,),
    ),
    Mutant(
        bug=19,
        name="the-driver-does-not-know-what-a-replay-gave",
        file=PUBLICATION,
        find="    replayed_at = summary.replayed_at or Position(0)\n    return max(settled_at(summary), replayed_at,",
        replace="    replayed_at = Position(0)\n    return max(summary.published_at or 0, replayed_at,",
        tests=(ONCE,),
    ),
    Mutant(
        bug=1,
        name="a-rewind-goes-behind-a-replay",
        file="src/penstock/commit/rewind.py",
        find="        if isinstance(entry.body, Replayed):\n",
        replace="        if False:\n",
        tests=(f"{OF_REPLAY}::test_a_rewind_does_not_go_behind_a_replay",),
    ),
    Mutant(
        bug=1,
        name="a-record-with-a-receipt-is-replayed-again",
        file="src/penstock/core/quarantined_record.py",
        find="    return replace(record, replayed=True)\n",
        replace="    return record\n",
        tests=(OF_RECORDS,),
    ),
    Mutant(
        bug=1,
        name="one-receipt-stands-for-all-equal-records",
        file="src/penstock/core/quarantined_record.py",
        find="    receipts[key] -= 1  # I2\n",
        replace="",
        tests=(OF_RECORDS,),
    ),
    Mutant(
        bug=2,
        name="a-receipt-does-not-tell-the-batch",
        file="src/penstock/core/quarantined_record.py",
        find='f"g{self.generation}-b{self.batch}-{self.id}"',
        replace="self.id",
        tests=(OF_RECORDS,),
    ),
    Mutant(
        bug=34,
        name="a-table-is-read-without-what-was-replayed",
        file="src/penstock/commit/as_of.py",
        find="        if isinstance(entry.body, Replayed):\n            return entry\n",
        replace="        if isinstance(entry.body, Replayed):\n            return None\n",
        tests=(f"{OF_REPLAY}::test_a_table_is_read_with_what_was_replayed_and_as_of_batches_without_it",),
    ),
    Mutant(
        bug=2,
        name="receipts-are-not-seen-behind-a-backfill-that-was-interrupted",
        file="src/penstock/commit/as_of.py",
        find="        at = None if before is None else before.summary.replayed_at\n",
        replace="        at = None\n",
        tests=(BEHIND_BACKFILL,),
    ),
    Mutant(
        bug=2,
        name="a-replay-whose-receipts-are-gone-is-not-missed",
        file="src/penstock/commit/publication.py",
        find="any(each.name not in present for each in pieces)",
        replace="False",
        tests=(f"{OF_REPLAY}::test_a_replay_whose_receipts_are_gone_is_known_by_the_ledger",),
    ),
    Mutant(
        bug=5,
        name="what-a-backfill-put-aside-may-come-behind-a-later-batch",
        file="src/penstock/commit/summary.py",
        find="    return replace(given, replayed_at=position, replaying_at=position)\n",
        replace="    return given\n",
        tests=(OF_ASIDE,),
    ),
    Mutant(
        bug=32,
        name="a-sink-in-the-middle-of-a-backfill-is-taken-for-an-older-copy",
        file="src/penstock/run/ledger_match.py",
        find="            if piece.sink not in waiting:  # a backfill that put rows aside may lack its own\n",
        replace="            if True:\n",
        tests=(f"{OF_ASIDE}::test_rows_that_the_sink_cannot_take_are_in_the_quarantine_once",),
    ),
    Mutant(
        bug=17,
        name="verify-takes-any-number-of-rows",
        file="src/penstock/commit/row_counts.py",
        find="        return self.rows_in == self.rows_out + self.aside  # I1, I2\n",
        replace="        return self.rows_in >= self.rows_out\n",
        tests=(OF_COUNTS,),
    ),
    Mutant(
        bug=17,
        name="verify-counts-receipts-as-records",
        file="src/penstock/commit/row_counts.py",
        find=" - aside.receipts for",
        replace=" for",
        tests=(OF_COUNTS,),
    ),
    Mutant(
        bug=27,
        name="receipts-count-as-put-aside-within-the-hour",
        file="src/penstock/commit/recent_rows.py",
        find="            rows += entry.body.decision.totals_of(sink).rows\n",
        replace="            rows += 0\n",
        tests=(ONCE,),
    ),
)
