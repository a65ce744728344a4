"""Whether the sources still have what a decided batch read, so that it can be read once more."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from penstock.checkpoint.input_listing import changes_of
from penstock.checkpoint.source_log import fingerprint
from penstock.core.kafka_offset import topic_offsets_in
from penstock.core.model import Decision, OffsetRange, SourceName
from penstock.core.topics import GapAccepted, InputFile
from penstock.errors import CheckpointDamaged, Refused, SourcesChanged
from penstock.run.chain.lag import missing_of_table
from penstock.run.runtime import Runtime
from penstock.source.kafka.gaps import gap_descriptions, within
from penstock.source.kinesis.connection import connect
from penstock.source.kinesis.lag import missing_of_stream


class PastInput:
    """The input of the batches that the ledger decided, by their offsets."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def files(self, decision: Decision) -> Mapping[SourceName, tuple[InputFile, ...]]:
        """Return the input files of a batch. Raises Refused if the checkpoint names others than were delivered."""
        ranges, checkpoint = decision.batch.offsets, self._runtime.checkpoint
        unknown = next((each.source for each in ranges if each.source not in self._runtime.sources), None)
        if unknown is not None:
            raise SourcesChanged(
                f"Batch {decision.batch.batch_id} read source {unknown}, which the pipeline does not have any more.",
                remedy="Give the source its name back. `penstock history` shows what each batch read.",
            )
        files = checkpoint.files_between(ranges, self._runtime.sources)
        for each in ranges:
            if each.source in files and fingerprint(files[each.source]) != each.content:
                raise Refused(
                    f"Batch {decision.batch.batch_id} was decided with other files of source {each.source} than the checkpoint "
                    f"{checkpoint.location} names for it.",
                    remedy="Put the right checkpoint back. `penstock history` shows what the batch read.",
                )
        return files

    def ranges(self, decision: Decision) -> tuple[OffsetRange, ...]:
        """Return the offsets of a batch, with the start that Spark notes elsewhere for a first batch, if it is still there."""
        ranges = decision.batch.offsets
        if all(each.start is not None for each in ranges):
            return ranges
        try:
            noted = self._runtime.checkpoint.beginnings(decision.batch.batch_id, self._runtime.sources)
        except CheckpointDamaged:  # Spark has removed the entry, and with it the note of Penstock's own reader
            noted = {}
        return tuple(each if each.start is not None else replace(each, start=noted.get(each.source)) for each in ranges)

    def missing(self, decision: Decision) -> str | None:
        """Return what is missing of the input of a batch, as the end of a sentence; None if all of it is there."""
        return next(self._missing(decision), None)

    def _missing(self, decision: Decision) -> Iterator[str]:
        for name, files in self.files(decision).items():
            wrong = changes_of(files, self._runtime.checkpoint.inputs)
            if wrong:
                yield f"source {name}: {wrong[0][1]}" + (f", and {len(wrong) - 1} more" if len(wrong) > 1 else "")
        ranges = self.ranges(decision)
        if self._runtime.watch is not None:
            yield from self._missing_in_kafka(ranges, decision)
        if self._runtime.journals is not None:
            yield from self._runtime.journals.missing(ranges)
        for each in ranges:
            table = self._runtime.tables.get(each.source)
            missing = None if table is None else missing_of_table(table, each)
            stream = self._runtime.streams.get(each.source)
            missing = missing_of_stream(stream, each, connect=connect) if stream is not None else missing
            if missing is not None:
                yield f"source {each.source}: {missing.rstrip('.')}"

    def _missing_in_kafka(self, ranges: Sequence[OffsetRange], decision: Decision) -> Iterator[str]:
        watch, evidence = self._runtime.watch, decision.evidence
        assert watch is not None
        unknown = next((each for each in ranges if each.source in watch.sources and each.start is None and each.end), None)
        if unknown is not None:
            yield f"source {unknown.source}: the checkpoint does not tell any more where the first batch began"
            return
        gaps = watch.look(ranges, known=evidence.topics).gaps
        ends = {each.source: topic_offsets_in(each.end) for each in ranges if each.source in watch.sources}
        found = [part for gap in gaps for part in within(gap, ends[gap.source]) if not _was_accepted(part, evidence.gaps)]
        if found:
            yield gap_descriptions(tuple(found))


def _was_accepted(gap: GapAccepted, accepted: Sequence[GapAccepted]) -> bool:
    """Return whether the batch was delivered without these records, too."""
    return any(
        (each.source, each.topic, each.partition) == (gap.source, gap.topic, gap.partition) and gap.end <= each.end
        for each in accepted
    )
