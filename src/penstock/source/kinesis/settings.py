"""Settings of the reader of Kinesis as they reach the processes that read: text options of a data source.

Every worker imports it, so it needs no library that validates pipeline files.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.errors import DependencyMissing
from penstock.support.extras import install_command

FORMAT = "penstock_kinesis"
"""The data source's name in Spark."""
NAME, BEGINS, EACH = "penstock.source", "penstock.begins", "penstock.begins."
"""Options that only Penstock gives: the source's name, and where reading begins, as a whole or by shard."""
_CONNECTION = ("region", "endpoint", "profile", "access_key_id", "secret_access_key", "session_token")
_RECORDS, _BYTES = 100_000, 64 << 20
"""Limits of a batch unless options say otherwise: the driver reads what it plans, to know where a batch ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KinesisSettings:
    """One source. `begins`: where a query without a checkpoint begins, as a whole or by shard. `connection`: options of AWS."""

    name: str
    stream: str
    connection: Mapping[str, str] = field(default_factory=dict, repr=False)
    begins: str | Mapping[str, str] = "LATEST"
    max_records: int = _RECORDS
    max_bytes: int = _BYTES
    fails_on_loss: bool = True
    is_split: bool = True

    @property
    def place(self) -> str:
        """Where the stream is, for people."""
        return self.connection.get("endpoint") or self.connection.get("region") or "the region of the environment"


def settings_in(options: Mapping[str, str]) -> KinesisSettings:
    """Return the settings in the data source's options, in whatever case their keys arrive."""
    lowered = {key.lower(): value for key, value in options.items()}
    each = {f"shardId{key[len(EACH) :].removeprefix('shardid')}": at for key, at in lowered.items() if key.startswith(EACH)}
    return KinesisSettings(
        name=lowered[NAME],
        stream=lowered["streamname"],
        connection={key: lowered[key] for key in _CONNECTION if key in lowered},
        begins=each or lowered[BEGINS],
        max_records=int(lowered.get("maxrecordspertrigger", _RECORDS)),
        max_bytes=int(lowered.get("maxbytespertrigger", _BYTES)),
        fails_on_loss=lowered.get("failondataloss", "true").lower() == "true",
        is_split=lowered.get("aggregated", "split").lower() == "split",
    )


def no_client(cause: ImportError) -> DependencyMissing:
    """Return the error for a machine without the client library."""
    return DependencyMissing(
        f"The reader of Kinesis needs the package boto3, which is not installed: {cause}.",
        remedy=f"Install it on the driver and on every executor: {install_command('kinesis')}",
    )
