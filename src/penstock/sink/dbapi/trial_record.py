"""The result of a table's trial as a document in the marker's row, so that a table is tried once for each shape of rows."""

from collections.abc import Mapping
from typing import Any

from penstock.core.codec.document import decode, encode_document
from penstock.core.codec.fields import integer, items, mapping, require_fields, text
from penstock.core.model import Json
from penstock.sink.dbapi.trial import TrialResult

FORMAT, VERSION = "penstock.dbapi-trial", 1

_FIELDS = frozenset({"shape", "required", "lacking", "longest"})


def encode_trial(result: TrialResult, *, shape: str) -> str:
    """Return the document. `shape` identifies what was tried: any other shape is tried anew."""
    fields: dict[str, Json] = {
        "shape": shape,
        "required": list(result.required),
        "lacking": {name: list(whats) for name, whats in result.lacking.items()},
        "longest": dict(result.longest),
    }
    return encode_document(FORMAT, VERSION, fields).decode("ascii")


def decode_trial(document: str, *, shape: str) -> TrialResult | None:
    """Return the result, None if something else than `shape` was tried. Raise LedgerMismatch, FormatTooNew."""

    def read(fields: dict[str, Any]) -> TrialResult | None:
        require_fields(fields, _FIELDS)
        result = TrialResult(
            required=tuple(text(name) for name in items(fields["required"])),
            lacking={name: tuple(text(what) for what in items(whats)) for name, whats in _named(fields["lacking"])},
            longest={name: integer(most) for name, most in _named(fields["longest"])},
        )
        return result if text(fields["shape"]) == shape else None

    data = document.encode("ascii", "replace")
    return decode(data, kind=FORMAT, where="What is known of a table's columns", readers={VERSION: read})


def _named(value: object) -> "list[tuple[str, Any]]":
    found: Mapping[str, Any] = mapping(value)
    return list(found.items())
