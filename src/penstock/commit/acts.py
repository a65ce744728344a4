"""The acts of an operator that change what the ledger says was delivered: rewinding, giving a sink earlier batches, replaying."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from penstock.commit.coordinator import ActAheadError, Coordinator
from penstock.commit.executor import all_published, publish_entry
from penstock.commit.publication import decision_in, newest_given, settled_at, waiting_backfill_of
from penstock.commit.rewind import summary_after
from penstock.commit.summary import (
    after_adoption,
    after_backfill,
    after_backfill_ended,
    after_backfilled,
    after_finished_rewind,
    after_late_keeping,
    after_replayed,
)
from penstock.core.backfill import Backfilled, BackfillEnded
from penstock.core.model import Adopted, Decision, Entry, Opened, Position, Published, Rewound, SinkName
from penstock.core.replay import Replayed
from penstock.errors import Failed, Refused
from penstock.protocols import Sink


class ActingCoordinator(Coordinator):
    """A coordinator that carries out acts of an operator. Open it first: the act then belongs to its generation."""

    def adopt(self, adopted: Adopted) -> Entry:
        """Record the operator's act: the pipeline goes on with a batch of a query (None: of any new checkpoint).

        Raises Failed after the first decision of a generation: within one, batch numbers must grow, for readers and the sweep.
        """
        tail = self._open_tail()
        if self._newest is not None and self._newest.generation == tail.generation:
            raise Failed(
                "This run has delivered batches of the checkpoint that it opened with.", remedy="Open the pipeline again."
            )

        def entry_after(tail: Entry) -> Entry:
            summary = after_adoption(tail.summary, adopted, position=Position(tail.position + 1))
            return self._entry(adopted, summary=summary, after=tail)

        return self._append_behind(entry_after)

    def settle(self, opened: Opened, *, backfilled: SinkName | None = None) -> Entry:
        """Record by one more `Opened` that everything decided is published, so that sinks may be taken out of the pipeline.

        Called after a rewind, once sinks and checkpoint are as it says, and after a backfill of sink `backfilled`: then that is
        recorded, too.
        """

        def entry_after(tail: Entry) -> Entry:
            summary = after_finished_rewind(tail.summary)
            return self._entry(opened, summary=summary if backfilled is None else after_backfill(summary, backfilled), after=tail)

        return self._append_behind(entry_after)

    def rewind(self, rewound: Rewound) -> Entry:
        """Record the operator's act: all batches after one are taken back. What is left to do is to carry it out.

        Raises Refused if the ledger does not hold what the act needs. Call `settle` afterwards, and nothing else.
        """
        self._spent = True

        def entry_after(tail: Entry) -> Entry:
            position = Position(tail.position + 1)
            return self._entry(rewound, summary=summary_after(rewound, self._ledger, tail, position=position), after=tail)

        return self._append_behind(entry_after)  # here the batches are taken back

    def keep_in_rewind(self, act: Entry, sinks: Sequence[SinkName], *, reason: str, operator: str) -> Entry:
        """Record that `sinks`, which are gone, keep what the unfinished rewind `act` takes from the others.

        Raises Refused if the ledger does not hold the entry before `act` any more. Call `settle` afterwards.
        """
        assert isinstance(act.body, Rewound)
        unrewound = self._ledger.read(Position(act.position - 1))
        if unrewound is None:
            raise Refused(
                f"The ledger does not hold the entry before position {act.position}, where the rewind began.",
                remedy="Put the sink back into the pipeline file as it was, and run the command again.",
            )
        body = replace(act.body, kept=(*act.body.kept, *sinks), reason=reason, operator=operator)
        before = unrewound.summary

        def entry_after(tail: Entry) -> Entry:
            position = Position(tail.position + 1)
            summary = after_late_keeping(tail.summary, sinks=sinks, unrewound=before, position=position)
            return self._entry(body, summary=summary, after=tail)

        return self._append_behind(entry_after)

    def backfill(self, sink: Sink, decision: Decision, *, original: Position) -> Published:
        """Decide the batch of an earlier decision, the one at `original`, once more for `sink`, and publish it there.

        What the sink was given before must be published. Raises Fenced, and what publishing raises; a batch that was decided then
        is published by `publish_backfilled` of the next coordinator.
        """

        def entry_after(tail: Entry) -> Entry:
            position = Position(tail.position + 1)
            previous = max(settled_at(tail.summary), newest_given(tail.summary, sink.name))
            body = Backfilled(sink=sink.name, original=original, previous=previous, decision=decision)
            return self._entry(body, summary=after_backfilled(tail.summary, body, position=position), after=tail)

        with self._spent_if_it_fails():
            self._claim_places([sink])
            entry = self._append_behind(entry_after)  # I2, I8
            self._publish_replay()
            return self._publish_backfilled(sink, entry)

    def publish_backfilled(self, sink: Sink) -> Published | None:
        """Publish again the newest batch of a backfill of `sink` that has not ended (I1). Return None if there is none."""
        with self._spent_if_it_fails():
            waiting = waiting_backfill_of(self._ledger, self.summary, sink.name)
            return None if waiting is None else self._publish_backfilled(sink, waiting)

    def _publish_backfilled(self, sink: Sink, entry: Entry) -> Published:
        outcome = publish_entry(entry, sink, ledger_id=self.summary.ledger_id, retrying=self._retrying)
        return all_published(decision_in(entry).batch.batch_id, [sink], [outcome])[sink.name]

    def join(self, sink: Sink) -> None:
        """Have a sink that is apart take part in each decision from here on, if it was given every batch before. It is prepared.

        Called behind this run's fence, before it decides anything. The backfill that gave the batches need not be there any more.
        """
        with self._spent_if_it_fails():
            self.publish_backfilled(sink)  # I1
            while self._may_join(sink.name):
                ended, tail = BackfillEnded(sink=sink.name, joins=True), self._open_tail()
                with suppress(ActAheadError):
                    self._append(self._entry(ended, summary=after_backfill_ended(tail.summary, ended), after=tail))

    def _may_join(self, sink: SinkName) -> bool:
        progress = self.summary.backfills.get(sink)
        return progress is not None and progress.apart and progress.is_level

    def replay(self, decision: Decision, *, records: int) -> dict[SinkName, Published]:
        """Decide `records` of the quarantine as a batch of their own, and publish it everywhere.

        Raises Fenced, and what publishing raises; what was decided then is published by the next coordinator that is opened.
        """

        def entry_after(tail: Entry) -> Entry:
            summary = tail.summary
            previous = max(settled_at(summary), *(newest_given(summary, name) for name in names))
            body = Replayed(decision=decision, records=records, previous=previous)
            return self._entry(body, summary=after_replayed(summary, body, position=Position(tail.position + 1)), after=tail)

        names = [sink.name for sink in self._sinks]
        with self._spent_if_it_fails():
            self._claim_places(self._sinks)
            self._append_behind(entry_after)  # I2, I8: here the records are delivered, exactly once
            return self._publish_replay()
