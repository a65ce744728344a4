"""The interface of a user-written sink: the methods that its author implements, and the batch that they are given."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from penstock.core.model import Batch, Publication
from penstock.sink.spool.writer import RowCheck

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnBatch:
    """One decided batch for one sink, identical at every repetition.

    `key`: the name of the batch, unique among all batches of this sink; letters, digits and `._-=` only. `rows`: Arrow batches in
    their frozen order, to be read once and to the end. `count`: the number of rows. `batch`: Spark's identity of the batch, with
    the offsets of its sources.
    """

    key: str
    rows: "Iterator[pa.RecordBatch]"
    count: int
    schema: "pa.Schema"
    batch: Batch


def mark_key(pipeline: str, sink: str) -> str:
    """Return the key of a sink's mark. It is unambiguous: no pipeline or sink has a `=` in its name."""
    return f"{pipeline}={sink}"


def batch_key(publication: Publication) -> str:
    """Return the key of a batch. As texts, keys sort in the order of the batches."""
    return f"{mark_key(publication.pipeline, publication.sink)}={publication.position:012d}"


T = TypeVar("T")


class Author(ABC, Generic[T]):
    """The methods of a user-written sink: seven, and a name for people.

    T is what `transaction` yields: a connection, a cursor, or nothing. `idempotent` states that writing the rows of one
    `batch.key` again changes nothing, so that they need not become visible together with the mark.
    """

    idempotent: ClassVar[bool] = False

    @property
    @abstractmethod
    def where(self) -> str:
        """The target's name, for people: no secrets in it."""

    @abstractmethod
    def exists(self) -> bool:
        """Return whether `create` has made the target before. Change nothing."""

    @abstractmethod
    def create(self, schema: "pa.Schema") -> None:
        """Create the target for rows of `schema`, or check that the existing one will do. Called at every start."""

    @abstractmethod
    def transaction(self) -> AbstractContextManager[T]:
        """Return a context manager for a transaction. If its block raises, undo what can be undone.

        It excludes all other transactions on the target, in every thread and process: they wait until it ends.
        """

    @abstractmethod
    def read_mark(self, transaction: T, key: str) -> str | None:
        """Return the text that `write_mark` last stored under `key`, None if it never did. Each pipeline and sink has one key."""

    @abstractmethod
    def write_mark(self, transaction: T, key: str, mark: str) -> None:
        """Store `mark` (ASCII, some kilobytes) under `key`, in place of the old text.

        Store it where it can be lost only together with the rows.
        """

    @abstractmethod
    def write_rows(self, transaction: T, batch: OwnBatch) -> None:
        """Write every row of `batch.rows`."""

    @abstractmethod
    def read_rows(self, transaction: T, schema: "pa.Schema") -> "Iterable[pa.RecordBatch]":
        """Return all rows of the target, value by value, whoever wrote them, with the columns of `schema`. For `verify`."""

    def row_check(self) -> RowCheck | None:
        """Return None, or a picklable function that raises StageFailed in the tasks for rows that `write_rows` cannot take."""
        return None
