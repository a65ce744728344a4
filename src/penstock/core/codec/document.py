"""The envelope of every durable value: its format, its version, and the errors for a value that cannot be read."""

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from penstock.core.codec.fields import DamagedError, integer
from penstock.core.model import Json
from penstock.errors import FormatTooNew, LedgerMismatch


def refuse_constant(name: str) -> None:
    """Raise ValueError for NaN and infinities: Python's parser accepts them, but JSON has no such numbers."""
    raise ValueError(f"{name} is no number of JSON")


_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=True, check_circular=False).encode
_decode = json.JSONDecoder(parse_constant=refuse_constant).decode
_T = TypeVar("_T")


def encode_document(kind: str, version: int, fields: Mapping[str, Json]) -> bytes:
    """Return the bytes of one durable value. Raises ValueError for NaN, infinity and the reserved field names."""
    if "format" in fields or "version" in fields:
        raise ValueError("the fields format and version belong to the document")
    return _encode({"format": kind, "version": version, **fields}).encode("ascii")


def decode_document(data: bytes, *, kind: str, newest: int, where: str) -> tuple[int, dict[str, Json]]:
    """Return the version and the other fields of a document of `kind`.

    `newest` is the newest version that the caller reads; `where` names the value in errors. Raises LedgerMismatch for damage and
    for another kind, FormatTooNew for a newer version.
    """
    try:
        version, fields = _open(data, kind)
    except (DamagedError, ValueError, RecursionError) as damage:
        raise mismatch(where, damage) from None
    if version > newest:
        raise FormatTooNew(
            f"{where} has version {version} of format {kind}, but this Penstock reads versions up to {newest}.",
            remedy="Run the newest Penstock that ever wrote here, or a newer one.",
        )
    return version, fields


def _open(data: bytes, kind: str) -> tuple[int, dict[str, Json]]:
    fields = _decode(data.decode("ascii"))
    if not isinstance(fields, dict):
        raise DamagedError(f"expected an object, found {type(fields).__name__}")
    found, version = fields.pop("format", None), fields.pop("version", None)
    if found != kind:
        raise DamagedError(f"expected format {kind}, found {found!r}")
    if integer(version) < 1:
        raise DamagedError(f"expected a version from 1 on, found {version}")
    return version, fields


def mismatch(where: str, damage: Exception) -> LedgerMismatch:
    """Return the error to raise for a durable value that cannot be read."""
    return LedgerMismatch(
        f"{where} is damaged or not of Penstock: {damage}.",
        remedy="Restore it from a backup; never edit it by hand.",
    )


def decode(data: bytes, *, kind: str, where: str, readers: Mapping[int, Callable[[dict[str, Any]], _T]]) -> _T:
    """Return the value that the reader of the document's version builds from its fields. Raises LedgerMismatch, FormatTooNew."""
    version, fields = decode_document(data, kind=kind, newest=max(readers), where=where)
    try:
        return readers[version](fields)
    except DamagedError as damage:
        raise mismatch(where, damage) from None
