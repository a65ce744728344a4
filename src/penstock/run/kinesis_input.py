"""What a pipeline asks Kinesis beside its query: how far it is behind, and whether the streams are there at all."""

from collections.abc import Iterator, Mapping

from penstock.core.model import Finding, SourceName
from penstock.errors import PenstockError
from penstock.source.kinesis.connection import connect
from penstock.source.kinesis.lag import StreamLag, describe_lag, lag_of
from penstock.source.kinesis.streams import kinesis_sources
from penstock.spec.pipeline import DeliverySettings
from penstock.support.secret import scrub


def stream_lags(
    settings: DeliverySettings, delivered: Mapping[SourceName, str | None]
) -> tuple[tuple[StreamLag, ...], tuple[str, ...]]:
    """Return the lag of each stream behind `delivered`, as Spark logs offsets, and why some do not tell theirs.

    Costs a read of each shard that is not finished, of the five that it allows in a second.
    """
    found, untold = list[StreamLag](), list[str]()
    for name, source in kinesis_sources(settings).items():
        try:
            found.append(lag_of(name, source, delivered.get(name), connect=connect))
        except PenstockError as error:
            untold.append(scrub(str(error)))
    return tuple(found), tuple(untold)


def stream_findings(lags: tuple[StreamLag, ...], untold: tuple[str, ...], *, delivered: str) -> Iterator[Finding]:
    """Yield for `penstock check` whether Kinesis answers, still has what is to be read next, and for how long.

    `delivered`: the subject of the finding that a stream does not continue what was delivered.
    """
    for message in untold:
        yield Finding(subject="kinesis", ok=False, message=message)
    for lag in lags:
        subject = f"records of {lag.source}" if lag.gap is None else delivered
        message = f"{describe_lag(lag)} ({lag.shards} open shard{'' if lag.shards == 1 else 's'})"
        yield Finding(subject=subject, ok=lag.gap is None and not lag.is_near_loss, message=message)
