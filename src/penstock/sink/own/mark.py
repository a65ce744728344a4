"""The mark of a user-written sink: one JSON document, which the sink's author keeps beside the rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Generic

from penstock.codec.document import decode, encode_document
from penstock.codec.fields import DamagedError, items, record, require_fields
from penstock.errors import PublishFailed
from penstock.faults import FaultPoint
from penstock.model import Json, PipelineName, Position, Publication, SinkName
from penstock.sink.own.author import Author, T
from penstock.sink.own.batch import mark_key
from penstock.sink.table.marker import FORMAT_VERSION, TableMarker, identity, marker_from, marker_values

MARK = FaultPoint("own.mark", "A user-written sink writes the mark that the batch is there.")

FORMAT, VERSION = "penstock.own-mark", 1
REMEMBERED_BATCHES = 50
"""How many of the last positions are told apart one by one. A zombie that is further behind is refused instead of recognised."""

_OFFSETS = 2
_OWNER = ("pipeline", "sink")
_COLUMNS = (
    *("table_name", "write", "position", "generation", "query_id", "batch_id", "offsets", "schema"),
    *(f"{kind}_{name}" for name in ("decided", "before", "after") for kind in ("rows", "digest")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """The marker, and what the last batches were: each position with `identity`'s values, the offsets as a hash of theirs."""

    marker: TableMarker
    batches: Mapping[Position, tuple[Any, ...]]

    def batch_at(self, publication: Publication) -> tuple[Any, ...] | None:
        """What `identity` was at the publication's position, None if that is not known any more."""
        found, own = self.batches.get(publication.position), tuple(identity(publication).values())
        return own if found == _remembered(publication) else found

    def after(self, marker: TableMarker, publication: Publication) -> "Mark":
        """The mark with one batch more."""
        kept = {at: batch for at, batch in self.batches.items() if at > publication.position - REMEMBERED_BATCHES}
        return replace(self, marker=marker, batches={**kept, publication.position: _remembered(publication)})


def encode_mark(mark: Mark) -> str:
    """The document's text."""
    fields: dict[str, Json] = {key: value for key, value in marker_values(mark.marker).items() if key != "format_version"}
    batches: list[Json] = [[at, *batch] for at, batch in sorted(mark.batches.items())]
    return encode_document(FORMAT, VERSION, {"marker": fields, "batches": batches}).decode("ascii")


def decode_mark(text: str, *, pipeline: PipelineName, sink: SinkName) -> Mark:
    """The mark in `text`. Raises LedgerMismatch for damage, FormatTooNew."""

    def read(fields: dict[str, Any]) -> Mark:
        require_fields(fields, frozenset({"marker", "batches"}))
        values, batches = record(fields["marker"], frozenset((*_OWNER, *_COLUMNS))), items(fields["batches"])
        try:
            marker = marker_from([FORMAT_VERSION, *(values[name] for name in _COLUMNS)], pipeline, sink)
            return Mark(marker=marker, batches={Position(int(batch[0])): tuple(batch[1:]) for batch in batches})
        except (ValueError, TypeError, IndexError) as damage:
            raise DamagedError(f"expected the values of a marker: {damage!r}") from None

    data = text.encode("ascii", "replace")
    return decode(data, kind=FORMAT, where=f"The mark of sink {sink!r}", readers={VERSION: read})


def _remembered(publication: Publication) -> tuple[Any, ...]:
    values = list(identity(publication).values())
    values[_OFFSETS] = sha256(str(values[_OFFSETS]).encode()).hexdigest()[:16]
    return tuple(values)


class OwnMarks(Generic[T]):
    """As `Marks`, of the one mark that the author keeps. Whoever has the transaction has it alone."""

    def __init__(self, author: Author[T], transaction: T) -> None:
        self._author, self._transaction = author, transaction
        self._mark: Mark | None = None

    def read(self, pipeline: PipelineName, sink: SinkName) -> TableMarker | None:
        """As `Marks.read`. Raises LedgerMismatch for damage, FormatTooNew."""
        if self._mark is None:
            text = self._author.read_mark(self._transaction, mark_key(pipeline, sink))
            self._mark = None if text is None else decode_mark(text, pipeline=pipeline, sink=sink)
        return None if self._mark is None else self._mark.marker

    def require(self, pipeline: PipelineName, sink: SinkName) -> None:
        """Raise PublishFailed unless there is one: preparing has made it."""
        if self.read(pipeline, sink) is None:
            raise PublishFailed(
                f"Sink {sink!r} does not find its mark {mark_key(pipeline, sink)}.",
                remedy="Restore the target from a backup; or let `read_mark` find what `write_mark` kept.",
            )

    def write(self, marker: TableMarker) -> None:
        """As `Marks.write`."""
        self._keep(Mark(marker=marker, batches={} if self._mark is None else self._mark.batches))

    def owners(self, table: str) -> Sequence[tuple[PipelineName, SinkName]]:  # noqa: ARG002 - nobody lists marks
        """None that is known."""
        return []

    def newest_batch(self, pipeline: PipelineName, sink: SinkName) -> Position | None:  # noqa: ARG002 - they are in the mark
        """None that is apart from the mark."""
        return None

    def batch_at(self, publication: Publication) -> tuple[Any, ...] | None:
        """As `Marks.batch_at`."""
        return None if self._mark is None else self._mark.batch_at(publication)

    def advance(self, marker: TableMarker, publication: Publication) -> None:
        """As `Marks.advance`."""
        assert self._mark is not None, "a mark is read before it advances"
        with MARK.around():
            self._keep(self._mark.after(marker, publication))

    def _keep(self, mark: Mark) -> None:
        self._mark = mark
        self._author.write_mark(self._transaction, mark_key(mark.marker.pipeline, mark.marker.sink), encode_mark(mark))
