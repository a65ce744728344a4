"""The high-water mark that a sink keeps at each account."""

from typing import Any

from penstock.codec.document import decode, encode_document
from penstock.codec.fields import integer, require_fields, text
from penstock.model import AccountName, BatchId, Generation, Json, Marker, PipelineName, Position, QueryId, SinkName

FORMAT, VERSION = "penstock.marker", 1

_FIELDS = frozenset({"pipeline", "sink", "account", "position", "generation", "query_id", "batch_id"})


def encode_marker(marker: Marker) -> bytes:
    """The bytes of a sink's high-water marker."""
    fields: dict[str, Json] = {
        "pipeline": marker.pipeline,
        "sink": marker.sink,
        "account": marker.account,
        "position": marker.position,
        "generation": marker.generation,
        "query_id": marker.query_id,
        "batch_id": marker.batch_id,
    }
    return encode_document(FORMAT, VERSION, fields)


def decode_marker(data: bytes, *, where: str = "A marker") -> Marker:
    """The marker in `data`. Raises LedgerMismatch, FormatTooNew."""
    return decode(data, kind=FORMAT, where=where, readers={VERSION: _marker})


def _marker(fields: dict[str, Any]) -> Marker:
    require_fields(fields, _FIELDS)
    return Marker(
        pipeline=PipelineName(text(fields["pipeline"])),
        sink=SinkName(text(fields["sink"])),
        account=AccountName(text(fields["account"])),
        position=Position(integer(fields["position"])),
        generation=Generation(integer(fields["generation"])),
        query_id=QueryId(text(fields["query_id"])),
        batch_id=BatchId(integer(fields["batch_id"])),
    )
