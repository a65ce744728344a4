"""The mark of a user-written sink: one JSON document, which the sink's author stores beside the rows."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Generic

from penstock.core.codec.document import decode, encode_document
from penstock.core.codec.fields import require_fields
from penstock.core.faults import FaultPoint
from penstock.core.model import PipelineName, Position, Publication, SinkName
from penstock.errors import PublishFailed
from penstock.sink.own.author import Author, T, mark_key
from penstock.sink.table.document_marker import MARK_FIELDS, NAMED_MARK_FIELDS, Mark, mark_fields, mark_from
from penstock.sink.table.marker import TableMarker

MARK = FaultPoint("own.mark", "A user-written sink writes the mark that the batch is there.")

FORMAT = "penstock.own-mark"
_UNNAMED, _NAMED = 1, 2
"""Format versions: without and with the identity of the ledger that decided the batches."""


def encode_mark(mark: Mark) -> str:
    """Return `mark` as the text of its document."""
    version = _UNNAMED if mark.marker.ledger_id is None else _NAMED
    return encode_document(FORMAT, version, mark_fields(mark)).decode("ascii")


def decode_mark(text: str, *, pipeline: PipelineName, sink: SinkName) -> Mark:
    """Return the mark in `text`. Raises LedgerMismatch if it is damaged, FormatTooNew."""

    def read(fields: dict[str, Any], *, expected: frozenset[str]) -> Mark:
        require_fields(fields, expected)
        return mark_from(fields, pipeline=pipeline, sink=sink)

    readers = {_UNNAMED: partial(read, expected=MARK_FIELDS), _NAMED: partial(read, expected=NAMED_MARK_FIELDS)}
    return decode(text.encode("ascii", "replace"), kind=FORMAT, where=f"The mark of sink {sink!r}", readers=readers)


class OwnMarkerStore(Generic[T]):
    """A `MarkerStore` for the one mark that the author stores. The author's transaction excludes all other publishers."""

    def __init__(self, author: Author[T], transaction: T) -> None:
        self._author, self._transaction = author, transaction
        self._mark: Mark | None = None

    def read(self, pipeline: PipelineName, sink: SinkName) -> TableMarker | None:
        if self._mark is None:
            text = self._author.read_mark(self._transaction, mark_key(pipeline, sink))
            self._mark = None if text is None else decode_mark(text, pipeline=pipeline, sink=sink)
        return None if self._mark is None else self._mark.marker

    def require(self, pipeline: PipelineName, sink: SinkName) -> None:
        """Raise PublishFailed if the mark is missing: `prepare` has written it."""
        if self.read(pipeline, sink) is None:
            raise PublishFailed(
                f"Sink {sink!r} does not find its mark {mark_key(pipeline, sink)}.",
                remedy="Restore the target from a backup; or make `read_mark` return what `write_mark` stored.",
            )

    def write(self, marker: TableMarker) -> None:
        self._keep(Mark(marker=marker, batches={} if self._mark is None else self._mark.batches))

    def owners(self, table: str) -> Sequence[tuple[PipelineName, SinkName]]:  # noqa: ARG002 - nobody lists marks
        return []

    def newest_batch(self, pipeline: PipelineName, sink: SinkName) -> Position | None:  # noqa: ARG002 - they are in the mark
        return None

    def batch_at(self, publication: Publication) -> tuple[Any, ...] | None:
        return None if self._mark is None else self._mark.batch_at(publication)

    def advance(self, marker: TableMarker, publication: Publication) -> None:
        assert self._mark is not None, "a mark is read before it advances"
        with MARK.around():
            self._keep(self._mark.after(marker, publication))

    def _keep(self, mark: Mark) -> None:
        self._mark = mark
        self._author.write_mark(self._transaction, mark_key(mark.marker.pipeline, mark.marker.sink), encode_mark(mark))
