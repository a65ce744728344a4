"""Settings of Penstock's own Kafka reader, as they reach the processes that read: text options of a data source.

Every worker imports it, so it needs no library that validates pipeline files: loading that takes longer than reading a batch.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.errors import DependencyMissing
from penstock.support.extras import install_command

FORMAT = "penstock_kafka"
"""The data source's name in Spark."""
NAME, CLIENT = "penstock.source", "client."
"""Options that only Penstock gives: the source's name, and the prefix of each property of librdkafka."""
_ISOLATION, _UNCOMMITTED = "isolation.level", "read_uncommitted"
_PATIENCE_MS = 120_000
"""Default of `kafkaConsumer.pollTimeoutMs`, the longest wait for records; Spark's connector has the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderSettings:
    """The options of one source. `client` are librdkafka's; one of `subscribe`, `pattern` and `assign` is given."""

    name: str
    client: Mapping[str, str]
    subscribe: tuple[str, ...] | None = None
    pattern: str | None = None
    assign: Mapping[str, tuple[int, ...]] | None = None
    starting: str | Mapping[str, Mapping[int, int]] = "latest"
    starting_ms: int | Mapping[str, Mapping[int, int]] | None = None
    is_late_start_latest: bool = False
    max_offsets: int | None = None
    min_partitions: int | None = None
    max_records: int | None = None
    has_headers: bool = False
    fails_on_loss: bool = True
    patience_s: float = _PATIENCE_MS / 1000

    @property
    def is_committed(self) -> bool:
        """Whether only records of ended transactions are read."""
        return self.client.get(_ISOLATION) != _UNCOMMITTED


def settings_in(options: Mapping[str, str]) -> ReaderSettings:
    """Return the settings of `data_source_options`' result (`opening`), in whatever case its keys arrive."""
    lowered = {key.lower(): value for key, value in options.items()}
    by_time = lowered.get("startingoffsetsbytimestamp")
    return ReaderSettings(
        name=lowered.get(NAME, "kafka"),
        client={key[len(CLIENT) :]: value for key, value in lowered.items() if key.startswith(CLIENT)},
        subscribe=names_in(lowered.get("subscribe")),
        pattern=lowered.get("subscribepattern"),
        assign=assigned_in(lowered.get("assign")),
        starting=_starting(lowered.get("startingoffsets", "latest")),
        starting_ms=_count(lowered.get("startingtimestamp")) or (None if by_time is None else _by_partition(by_time)),
        is_late_start_latest=lowered.get("startingoffsetsbytimestampstrategy", "error").lower() == "latest",
        max_offsets=_count(lowered.get("maxoffsetspertrigger")),
        min_partitions=_count(lowered.get("minpartitions")),
        max_records=_count(lowered.get("maxrecordsperpartition")),
        has_headers=lowered.get("includeheaders", "false").lower() == "true",
        fails_on_loss=lowered.get("failondataloss", "true").lower() == "true",
        patience_s=(_count(lowered.get("kafkaconsumer.polltimeoutms")) or _PATIENCE_MS) / 1000,
    )


def names_in(text: str | None) -> tuple[str, ...] | None:
    """Return the topics of the option `subscribe`."""
    return None if text is None else tuple(name.strip() for name in text.split(",") if name.strip())


def assigned_in(text: str | None) -> Mapping[str, tuple[int, ...]] | None:
    """Return the partitions of the option `assign`."""
    return None if text is None else {topic: tuple(sorted(parts)) for topic, parts in json.loads(text).items()}


def _starting(text: str) -> str | Mapping[str, Mapping[int, int]]:
    return text.lower() if text.lower() in {"earliest", "latest"} else _by_partition(text)


def _by_partition(text: str) -> Mapping[str, Mapping[int, int]]:
    return {topic: {int(number): at for number, at in parts.items()} for topic, parts in json.loads(text).items()}


def _count(text: str | None) -> int | None:
    return None if text is None else int(text)


def require_client() -> None:
    """Raise DependencyMissing if this machine lacks the client library. Called before Spark starts for this reader alone."""
    try:
        import confluent_kafka  # noqa: F401, PLC0415 - whether that works is the question
    except ImportError as cause:
        raise no_client(cause) from cause


def no_client(cause: ImportError) -> DependencyMissing:
    """Return the error for a machine without the client library."""
    return DependencyMissing(
        f"Penstock's own reader of Kafka needs the package confluent-kafka, which is not installed: {cause}.",
        remedy=f"Install it on the driver and on every executor: {install_command('kafka')}",
    )
