"""Protocols of a table in an open format: what the sink needs from the log or the catalog that lists the table's files."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar, Final, Protocol, runtime_checkable

import pyarrow as pa

from penstock.core.high_water_mark import HighWaterMark
from penstock.core.model import Json, PipelineName, Position, Publication, SinkName
from penstock.errors import Conflict, Failed, OutcomeUnknown, Retryable
from penstock.sink.lake.write_mode import TableContent, WriteMode
from penstock.support.secret import scrub

_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFile:
    """One file of a table. `path` is as the table lists it: relative if the file lies in the table's directory of data files.

    `values` are the partition values as texts. `statistics` are those of its columns, as JSON in the form of a Delta log.
    `field_ids` are the table's numbers of columns, by path, where readers find columns by number.
    """

    path: str
    size_bytes: int
    values: Mapping[str, str | None]
    statistics: str = "{}"
    field_ids: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a commit does besides moving the marker. `content`: what the table shows after it; None if the marker does not count.

    `written_by`: the nonce in the names of files that publishing itself wrote; a later look removes files of other tries by it.
    `is_exclusive`: the change was computed from all that the snapshot holds, so any commit since then is a conflict.
    `is_rewrite`: the table has the same rows afterwards; who follows its changes finds none, and no marker moves.
    """

    added: Sequence[TableFile] = ()
    removed: Sequence[TableFile] = ()
    content: TableContent | None = None
    written_by: str | None = None
    is_exclusive: bool = False
    is_rewrite: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRange:
    """Where rows of some keys can be: values of partition columns, and the least and the greatest value of other columns."""

    partitions: Mapping[str, "pa.Array"]
    bounds: Mapping[str, "tuple[pa.Scalar, pa.Scalar]"]


class TableSnapshot(Protocol):
    """One version of a table. What is read from it never changes, and a commit on it is checked against later commits."""

    @property
    def version(self) -> int:
        """A number that grows with every commit of rows."""
        ...

    @property
    def next_version(self) -> int:
        """The version that an exclusive commit on this snapshot becomes, if nobody else's does."""
        ...

    @property
    def partition_by(self) -> tuple[str, ...]:
        """The partition columns, in the table's order."""
        ...

    @property
    def columns(self) -> Mapping[str, Json]:
        """All columns, in the table's order, each with its type as Spark's JSON of a schema has it."""
        ...

    @property
    def field_ids(self) -> Mapping[str, int] | None:
        """The numbers of the columns, at any depth by path; None where readers find columns by name."""
        return None

    @property
    def way_back(self) -> str:
        """What undoes a change of the table's columns, as the beginning of a remedy."""
        return "Alter the table back to what it was"

    def require_supported(self, mode: WriteMode) -> None:
        """Raise Refused for a table with a feature that Penstock does not write, or that forbids what `mode` does to rows."""
        ...

    def require_fit(self, schema: str, partition_by: Sequence[str]) -> None:
        """Raise Refused unless files of such rows may be added as they are: nothing checks or converts them later.

        The rows may lack columns of the table that may be null.
        """
        ...

    def add_columns(self, schema: str, names: Sequence[str]) -> None:
        """Add the columns `names` of rows of Spark's `schema` at the table's end, all of which may be null, in one commit.

        Raises Conflict if the columns may have changed since this snapshot, and OutcomeUnknown for any other error, after which
        the commit may be there. The snapshot must not be used afterwards.
        """
        ...

    def files(self, within: KeyRange | None = None) -> Iterator[TableFile]:
        """Yield the table's files; with `within`, only those that may hold rows of that range."""
        ...

    def marker(self, pipeline: PipelineName, sink: SinkName) -> HighWaterMark | None:
        """Return the position and the ledger that the table shows for a sink, None if it shows nothing of it."""
        ...

    def content(self, pipeline: PipelineName, sink: SinkName) -> TableContent | None:
        """Return what the marker counts of the table, None if it does not count: rows were only ever appended."""
        ...

    def described_marker(self, pipeline: PipelineName, sink: SinkName) -> HighWaterMark | None:
        """Return the marker, with its generation and batch if the table still records them."""
        ...

    def marker_of(self, position: Position, pipeline: PipelineName, sink: SinkName) -> HighWaterMark | None:
        """Return the marker that the publication at `position` set, None if the table does not record it any more."""
        ...

    def written_by(self, position: Position, pipeline: PipelineName, sink: SinkName) -> str | None:
        """Return `Change.written_by` of the publication at `position`, None if the table does not record it."""
        ...

    def commit(self, change: Change, publication: Publication) -> int:
        """Make the change and move the marker to the publication, in one commit, unless the marker moved since this snapshot.

        Return a version that has it: commits of others may have come between. Raises PublishFailed for a file that cannot be
        removed, Conflict if a commit of others stands against it, and OutcomeUnknown for any other error, after which it may be
        there. The snapshot must not be used afterwards.
        """
        ...

    def rewrite(self, change: Change) -> int:
        """Make a change that is a rewriting, in one commit that moves no marker and notes `written_by`: `next_version`, or none.

        Return a version that has it. Raises as `commit`. The snapshot must not be used afterwards.
        """
        ...

    def has_rewritten(self, version: int, nonce: str) -> bool | None:
        """Return whether the commit that is `version` is the rewriting by `nonce`.

        None if there is no such version yet, or the table does not record its commit any more. False is for ever.
        """
        ...


class TableLog(Protocol):
    """One table, which may not exist yet."""

    format: ClassVar[str]
    """The format's name, for people."""
    library: ClassVar[str]
    """The library that reads and writes it, with its version."""
    damaged: ClassVar[tuple[type[Exception], ...]]
    """What the library raises for a table that it does not understand. Any OSError means that a place did not answer."""
    remedy_for_existing_rows: ClassVar[str] = "; or set existing_rows: keep, and they are counted with its first batch"
    """What else than a table of its own lets a sink start whose table holds rows of others, as the end of a remedy."""

    @property
    def uri(self) -> str:
        """The table's place, for people."""
        ...

    @property
    def title(self) -> str:
        """The table as messages name it."""
        return f"{self.format} table {self.uri}"

    def require_storable(self, schema: str, partition_by: Sequence[str]) -> None:
        """Raise Usage for rows that no table of the format can hold."""
        ...

    def newest(self) -> TableSnapshot | None:
        """Return the newest snapshot, None if there is no table. Raises Retryable."""
        ...

    def create(self, schema: str, partition_by: Sequence[str]) -> None:
        """Create an empty table for rows of Spark's `schema` unless somebody was faster. Raises Failed, Retryable."""
        ...

    def prepare(self, schema: str, partition_by: Sequence[str]) -> TableSnapshot | None:
        """Return the newest snapshot of the table, which is created if it is missing. Raises Failed, Retryable."""
        ...

    def found_or_created(self, schema: str, partition_by: Sequence[str]) -> TableSnapshot | None:
        """Do the work of `prepare`, which calls this inside the format's fault point."""
        snapshot = self.newest()
        if snapshot is None:
            self.create(schema, partition_by)
            snapshot = self.newest()
        return snapshot

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Raise errors of reading as Retryable if the place does not answer, as Failed if the library does not understand."""
        try:
            yield
        except OSError as cause:
            raise Retryable(f"The {self.title} cannot be read: {first_line(cause)}.", remedy="Try again.") from cause
        except self.damaged as cause:
            raise Failed(
                f"The {self.title} cannot be read by {self.library}: {first_line(cause)}.",
                remedy="Repair the table, or restore it from a backup.",
            ) from cause

    def remove(self, path: str) -> None:
        """Remove a file that no version of the table has, unless it is gone already. Raises OSError, or what a store raises."""
        ...

    def sync(self, *, since: int, upto: int) -> None:
        """Make the commits after version `since` up to `upto` durable, if the library did not. Raises PublishFailed."""
        ...

    def close(self) -> None:
        """Release what is open."""
        return


@runtime_checkable
class KeepsApplicationVersions(Protocol):
    """A table in which any writer can leave the version of its newest commit, under the id of its application."""

    def application_version(self, application: str) -> int | None:
        """Return the newest version that `application` committed, None if it committed none. Delta's `txnAppId` is such an id.

        Raises Retryable, Failed.
        """
        ...


@contextmanager
def committing(title: str, conflict: type[Exception], *, remedy: str) -> Iterator[None]:
    """Raise Conflict for `conflict`, the library's error if another commit came first, and OutcomeUnknown for any other error."""
    try:
        yield
    except conflict as cause:
        raise Conflict(first_line(cause)) from cause
    except Exception as cause:
        raise OutcomeUnknown(f"The commit to the {title} failed: {first_line(cause)}.", remedy=remedy) from cause


def prepare_failed(point: str) -> Failed:
    """Return the error of an armed fault point in `prepare`."""
    return Failed(f"{point} failed.", remedy="Start again.")


def first_line(cause: BaseException) -> str:
    """Return what an error of a library says, in one line and without colours and secrets."""
    lines = scrub(_COLOURS.sub("", str(cause))).strip().splitlines() or [type(cause).__name__]
    return lines[0].rstrip(".:")
