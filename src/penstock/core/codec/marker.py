"""The high-water marker of an account (since version 2 also a manifest), and the file that names its owner, as JSON."""

from dataclasses import replace
from typing import Any

from penstock.core.codec.document import decode, encode_document
from penstock.core.codec.fields import integer, items, record, require_fields, text
from penstock.core.high_water_mark import AccountOwner, MarkedFile, Marker
from penstock.core.model import AccountName, BatchId, Generation, Json, LedgerId, PipelineName, Position, QueryId, SinkName

FORMAT = "penstock.marker"
_WITHOUT_FILES, _WITH_FILES, _WITH_LEDGER = 1, 2, 3
"""Versions: without a manifest, with one, and with the ledger's identity. Only older Penstocks wrote the first."""

_FIELDS = frozenset({"pipeline", "sink", "account", "position", "generation", "query_id", "batch_id"})
_OWNER_FORMAT, _OWNER_VERSION = "penstock.owner", 1
_OWNER_FIELDS = frozenset({"pipeline", "sink", "account", "ledger_id"})
_FILE_FIELDS = frozenset({"name", "rows", "size_bytes"})


def encode_marker(marker: Marker) -> bytes:
    """Return the bytes of a sink's high-water marker. A marker without a manifest is written as version 1."""
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
    if marker.ledger_id is None:
        return encode_document(FORMAT, _WITH_FILES, {**fields, "files": files})
    return encode_document(FORMAT, _WITH_LEDGER, {**fields, "files": files, "ledger_id": marker.ledger_id})


def decode_marker(data: bytes, *, where: str = "A marker") -> Marker:
    """Return the marker in `data`. Raises LedgerMismatch, FormatTooNew."""
    return decode(data, kind=FORMAT, where=where, readers=_READERS)


def encode_owner(owner: AccountOwner) -> bytes:
    """Return the bytes of the file that names an account's owner."""
    fields: dict[str, Json] = {
        "pipeline": owner.pipeline,
        "sink": owner.sink,
        "account": owner.account,
        "ledger_id": owner.ledger_id,
    }
    return encode_document(_OWNER_FORMAT, _OWNER_VERSION, fields)


def decode_owner(data: bytes, *, where: str) -> AccountOwner:
    """Return the owner in `data`. Raises LedgerMismatch, FormatTooNew."""
    return decode(data, kind=_OWNER_FORMAT, where=where, readers={_OWNER_VERSION: _owner})


def _owner(fields: dict[str, Any]) -> AccountOwner:
    require_fields(fields, _OWNER_FIELDS)
    return AccountOwner(
        pipeline=PipelineName(text(fields["pipeline"])),
        sink=SinkName(text(fields["sink"])),
        account=AccountName(text(fields["account"])),
        ledger_id=LedgerId(text(fields["ledger_id"])),
    )


def _with_files(fields: dict[str, Any]) -> Marker:
    files = items(fields.pop("files", None))
    return _marker(fields, tuple(_file(record(file, _FILE_FIELDS)) for file in files))


def _with_ledger(fields: dict[str, Any]) -> Marker:
    ledger_id = LedgerId(text(fields.pop("ledger_id", None)))
    return replace(_with_files(fields), ledger_id=ledger_id)


def _file(fields: dict[str, Any]) -> MarkedFile:
    return MarkedFile(name=text(fields["name"]), rows=integer(fields["rows"]), size_bytes=integer(fields["size_bytes"]))


def _marker(fields: dict[str, Any], files: tuple[MarkedFile, ...] | None = None) -> Marker:
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


_READERS = {_WITHOUT_FILES: _marker, _WITH_FILES: _with_files, _WITH_LEDGER: _with_ledger}
