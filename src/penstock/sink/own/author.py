"""What the author of a sink writes: where rows go, and where the mark that they are there."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from penstock.sink.own.batch import OwnBatch
from penstock.sink.spool.writer import RowCheck

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")


class Author(ABC, Generic[T]):
    """Seven methods and a name for people. T is what `transaction` gives: a connection, a cursor, or nothing.

    `idempotent`: writing the rows of one `batch.key` again changes nothing, so that they need not become visible with the mark.
    """

    idempotent: ClassVar[bool] = False

    @property
    @abstractmethod
    def where(self) -> str:
        """The target, for people: no secrets in it."""

    @abstractmethod
    def exists(self) -> bool:
        """Whether `create` made the target before. Changes nothing."""

    @abstractmethod
    def create(self, schema: "pa.Schema") -> None:
        """Make the target for rows of `schema`, or see that the one that is there will do. Called at every start."""

    @abstractmethod
    def transaction(self) -> AbstractContextManager[T]:
        """One at a time, whoever asks, in whatever process: others wait. Left by an exception, it undoes what it can."""

    @abstractmethod
    def read_mark(self, transaction: T, key: str) -> str | None:
        """The text that `write_mark` kept under `key` last; None if it never did. There is one key for each pipeline and sink."""

    @abstractmethod
    def write_mark(self, transaction: T, key: str, mark: str) -> None:
        """Keep `mark` (ASCII, some kilobytes) under `key`, in place of what was there, where only losing the rows loses it."""

    @abstractmethod
    def write_rows(self, transaction: T, batch: OwnBatch) -> None:
        """Write all of `batch.rows`."""

    @abstractmethod
    def read_rows(self, transaction: T, schema: "pa.Schema") -> "Iterable[pa.RecordBatch]":
        """Every row of the target, value by value, whoever wrote it: batches with the columns of `schema`. For `verify`."""

    def row_check(self) -> RowCheck | None:
        """A function, picklable, that raises StageFailed for rows that `write_rows` could never take. It runs in the tasks."""
        return None
