"""What another program delivered, by the application versions in the sinks' tables: `txnAppId` and `txnVersion` of Delta."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from penstock.core.model import SinkName
from penstock.errors import Refused, Usage
from penstock.observe.status import CheckpointPosition
from penstock.protocols import Sink

if TYPE_CHECKING:
    from penstock.sink.lake.log import KeepsApplicationVersions


@runtime_checkable
class _FillsTable(Protocol):
    @property
    def application_versions(self) -> "KeepsApplicationVersions | None": ...


def versions_in(sink: Sink) -> "KeepsApplicationVersions | None":
    """Return the sink's table if any writer can leave a version of its own in it, else None."""
    return sink.application_versions if isinstance(sink, _FillsTable) else None


def delivered_by(application: str, sinks: Sequence[Sink], position: CheckpointPosition) -> tuple[str, ...]:
    """Return for each sink what going on at `position` of the program's checkpoint means, by what `application` delivered there.

    The program wrote each batch with its number as version. Raises Refused for a batch that is there and would run again, and for
    a table without a version of the application; Usage if no sink has such tables.
    """
    if not any(map(versions_in, sinks)):
        raise Usage("--txn-app-id is given, but no sink fills a Delta table.", remedy="Leave it out.")
    return tuple(_stated(application, sinks, position))


def _stated(application: str, sinks: Sequence[Sink], position: CheckpointPosition) -> Iterator[str]:
    for sink in sinks:
        table = versions_in(sink)
        if table is not None:
            yield compared(application, sink.name, table, position)
        else:
            yield (
                f"Sink {sink.name!r} has no versions of other programs: what the checkpoint reads again gets TWICE into it if it "
                "appends; what it skips is lost."
            )


def compared(application: str, sink: SinkName, table: "KeepsApplicationVersions", position: CheckpointPosition) -> str:
    """Return what the newest version of `application` in the table means at `position`. Raises as `delivered_by`."""
    version, upcoming = table.application_version(application), position.next_batch_id
    if version is None and upcoming == 0:
        return f"Sink {sink!r}: its table has no batch of application {application!r}, and the checkpoint begins."
    if version is None:
        raise Refused(
            f"The table of sink {sink!r} has no version of application {application!r}.",
            remedy="Name the table that the program wrote to, and the txnAppId that it wrote with.",
        )
    if version == upcoming and position.is_replay:
        raise Refused(
            f"The table of sink {sink!r} has batch {version} of application {application!r}, but the checkpoint has no "
            f"commits/{version}: Spark would run that batch again, and its rows would be there twice.",
            remedy="Start the program once more: it passes over the batch, and Spark commits it. Stop it, and adopt then.",
        )
    if version >= upcoming:
        raise Refused(
            f"The table of sink {sink!r} has batch {version} of application {application!r}, but the checkpoint goes on with "
            f"batch {upcoming}: the batches in between would be there twice.",
            remedy="Name the checkpoint that the program used last, not a copy of it.",
        )
    if version == upcoming - 1:
        return (
            f"Sink {sink!r}: its table has every batch of application {application!r} up to {version}, the last one that the "
            "checkpoint committed: nothing comes twice, and nothing is lost."
        )
    return (
        f"Sink {sink!r}: its table has the batches of application {application!r} up to {version} only, and the checkpoint goes "
        f"on with batch {upcoming}: unless those in between had no rows, their records are LOST."
    )
