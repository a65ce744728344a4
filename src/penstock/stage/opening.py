"""Tables that rows name for the first time: they are opened in the driver, and the batch is staged once more."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

from penstock.core.model import AccountName, SinkName, Staged
from penstock.core.unopened import unopened_tables
from penstock.errors import StageFailed
from penstock.protocols import Sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TRIES = 5


@runtime_checkable
class OpensTables(Protocol):
    """A sink into tables that the rows name. Each is an account, and is opened when the first rows for it are staged."""

    def use_tables(self, tables: Collection[AccountName]) -> None:
        """Use the tables that the ledger knows. Called before `prepare`, `verify` and whatever looks at `accounts`."""
        ...

    def open_tables(self, tables: Sequence[AccountName]) -> None:
        """Create or check tables that tasks found rows for, before anything of the batch is decided.

        Called after `prepare`; `stager` is called once more afterwards. What it leaves if the batch is never decided are empty
        tables, which the next run finds. Raises StageFailed for too many tables, and what `prepare` raises.
        """
        ...


class HasPieces(Protocol):
    """What tasks staged."""

    @property
    def pieces(self) -> tuple[Staged, ...]: ...


P = TypeVar("P", bound=HasPieces)


def staged_with_tables(stage: Callable[[], P], sinks: Sequence[Sink]) -> P:
    """Return what `stage` staged, called again after tables that it found closed were opened. What it left is swept later.

    Rows computed anew can name other tables than before, but not for ever. Raises StageFailed, and what opening raises.
    """
    for _ in range(_TRIES):
        staged = stage()
        waiting = unopened_tables(staged.pieces)
        if not waiting:
            return staged
        _open(sinks, waiting)
    sink, tables = next(iter(waiting.items()))
    raise StageFailed(
        f"Rows for sink {sink!r} name new tables each time that they are computed, {tables[0]!r} for one.",
        remedy="Nothing of the batch was decided. Name tables by columns that are the same each time.",
    )


@contextmanager
def computed_once(rows: "DataFrame", sinks: Sequence[Sink]) -> "Iterator[DataFrame]":
    """Yield `rows`, kept on disk by Spark until the context ends if they may have to be staged again."""
    if not any(isinstance(sink, OpensTables) for sink in sinks):
        yield rows
        return
    from pyspark import StorageLevel

    kept = rows.persist(StorageLevel.DISK_ONLY)
    try:
        yield kept
    finally:
        kept.unpersist()


def _open(sinks: Sequence[Sink], waiting: Mapping[SinkName, list[AccountName]]) -> None:
    for sink in sinks:
        if sink.name in waiting:
            assert isinstance(sink, OpensTables)
            sink.open_tables(waiting[sink.name])
