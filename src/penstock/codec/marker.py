"""The high-water mark that a sink keeps at each account; since version 2 it is the manifest of its publication, too."""

from typing import Any

from penstock.codec.document import decode_document, encode_document, mismatch
from penstock.codec.fields import DamagedError, integer, items, record, require_fields, text
from penstock.model import AccountName, BatchId, Generation, Json, MarkedFile, Marker, PipelineName, Position, QueryId, SinkName

FORMAT, VERSION = "penstock.marker", 2
_WITHOUT_FILES = 1

_FIELDS = frozenset({"pipeline", "sink", "account", "position", "generation", "query_id", "batch_id"})
_FILE_FIELDS = frozenset({"name", "rows", "size_bytes"})


def encode_marker(marker: Marker) -> bytes:
    """The bytes of a sink's high-water marker; one without a manifest is what it was in version 1."""
    fields: dict[str, Json] = {
        "pipeline": marker.pipeline,
        "sink": marker.sink,
        "account": marker.account,
        "position": marker.position,
        "generation": marker.generation,
        "query_id": marker.query_id,
        "batch_id": marker.batch_id,
    }
    if marker.files is None:
        return encode_document(FORMAT, _WITHOUT_FILES, fields)
    files: list[Json] = [{"name": file.name, "rows": file.rows, "size_bytes": file.size_bytes} for file in marker.files]
    return encode_document(FORMAT, VERSION, {**fields, "files": files})


def decode_marker(data: bytes, *, where: str = "A marker") -> Marker:
    """The marker in `data`. Raises LedgerMismatch, FormatTooNew."""
    version, fields = decode_document(data, kind=FORMAT, newest=VERSION, where=where)
    try:
        return _marker(fields, None if version == _WITHOUT_FILES else _files(fields))
    except DamagedError as damage:
        raise mismatch(where, damage) from None


def _files(fields: dict[str, Any]) -> tuple[MarkedFile, ...]:
    """Takes them out of `fields`."""
    return tuple(_file(record(file, _FILE_FIELDS)) for file in items(fields.pop("files", None)))


def _file(fields: dict[str, Any]) -> MarkedFile:
    return MarkedFile(name=text(fields["name"]), rows=integer(fields["rows"]), size_bytes=integer(fields["size_bytes"]))


def _marker(fields: dict[str, Any], files: tuple[MarkedFile, ...] | None) -> Marker:
    require_fields(fields, _FIELDS)
    return Marker(
        pipeline=PipelineName(text(fields["pipeline"])),
        sink=SinkName(text(fields["sink"])),
        account=AccountName(text(fields["account"])),
        position=Position(integer(fields["position"])),
        generation=Generation(integer(fields["generation"])),
        query_id=QueryId(text(fields["query_id"])),
        batch_id=BatchId(integer(fields["batch_id"])),
        files=files,
    )
