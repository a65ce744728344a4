"""The high-water mark that a sink keeps at each account; since version 2 it is the manifest of its publication, too."""

from typing import Any

from penstock.codec.document import decode, encode_document
from penstock.codec.fields import integer, items, record, require_fields, text
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
    return decode(data, kind=FORMAT, where=where, readers={_WITHOUT_FILES: _without_files, VERSION: _with_files})


def _without_files(fields: dict[str, Any]) -> Marker:
    return _marker(fields, None)


def _with_files(fields: dict[str, Any]) -> Marker:
    files = items(fields.pop("files", None))
    return _marker(fields, tuple(_file(record(file, _FILE_FIELDS)) for file in files))


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
