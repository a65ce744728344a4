"""The high-water marker of an account (since version 2 also a manifest), and the file that names its owner, as JSON."""

from collections.abc import Mapping
from typing import Any

from penstock.core.codec.document import decode, encode_document
from penstock.core.codec.fields import INTEGER, TEXT, Field, Record
from penstock.core.high_water_mark import AccountOwner, MarkedFile, Marker

FORMAT = "penstock.marker"
_WITHOUT_FILES, _WITH_FILES, _WITH_LEDGER = 1, 2, 3
"""Versions: without a manifest, with one, and with the ledger's identity. Only older Penstocks wrote the first."""

_OWNER_FORMAT, _OWNER_VERSION = "penstock.owner", 1

_FILE = Record(MarkedFile, {"name": TEXT, "rows": INTEGER, "size_bytes": INTEGER})
_FIELDS: Mapping[str, Field[Any]] = {
    "pipeline": TEXT,
    "sink": TEXT,
    "account": TEXT,
    "position": INTEGER,
    "generation": INTEGER,
    "query_id": TEXT,
    "batch_id": INTEGER,
}
_MARKERS = {
    _WITHOUT_FILES: Record(Marker, _FIELDS),
    _WITH_FILES: Record(Marker, {**_FIELDS, "files": _FILE.listed}),
    _WITH_LEDGER: Record(Marker, {**_FIELDS, "files": _FILE.listed, "ledger_id": TEXT}),
}
_OWNER = Record(AccountOwner, {"pipeline": TEXT, "sink": TEXT, "account": TEXT, "ledger_id": TEXT})


def encode_marker(marker: Marker) -> bytes:
    """Return the bytes of a sink's high-water marker. A marker without a manifest is written as version 1."""
    with_files = _WITH_FILES if marker.ledger_id is None else _WITH_LEDGER
    version = _WITHOUT_FILES if marker.files is None else with_files
    return encode_document(FORMAT, version, _MARKERS[version].fields_of(marker))


def decode_marker(data: bytes, *, where: str = "A marker") -> Marker:
    """Return the marker in `data`. Raises LedgerMismatch, FormatTooNew."""
    return decode(data, kind=FORMAT, where=where, readers={version: each.read for version, each in _MARKERS.items()})


def encode_owner(owner: AccountOwner) -> bytes:
    """Return the bytes of the file that names an account's owner."""
    return encode_document(_OWNER_FORMAT, _OWNER_VERSION, _OWNER.fields_of(owner))


def decode_owner(data: bytes, *, where: str) -> AccountOwner:
    """Return the owner in `data`. Raises LedgerMismatch, FormatTooNew."""
    return decode(data, kind=_OWNER_FORMAT, where=where, readers={_OWNER_VERSION: _OWNER.read})
