"""What `penstock check` asks of the processes that read Kinesis: whether its client is there, and credentials that may read."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from penstock.core.model import Finding, SourceName
from penstock.errors import PenstockError
from penstock.source.kinesis.connection import connect
from penstock.source.kinesis.settings import KinesisSettings
from penstock.support.secret import scrub


@dataclass(frozen=True, slots=True)
class StreamCheck:
    """The check of one source in a task. Picklable; needs no package of an extra before it runs."""

    settings: KinesisSettings

    def findings(self) -> Sequence[Finding]:
        given = self.settings
        try:
            kinesis = connect(given)
            for shard in list(kinesis.shards())[:1]:
                kinesis.page(shard, kinesis.iterator(shard, "LATEST"), limit=1)
        except PenstockError as error:
            return [Finding(subject=f"kinesis of {given.name}", ok=False, message=scrub(str(error)))]
        return [Finding(subject=f"kinesis of {given.name}", ok=True, message=f"stream {given.stream} at {given.place}")]


def stream_checks(sources: Mapping[SourceName, KinesisSettings]) -> Iterator[StreamCheck]:
    """Yield one check for each source that is read from Kinesis."""
    yield from map(StreamCheck, sources.values())
