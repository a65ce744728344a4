"""The record of a trial, in the marker's row: its result, and how the table was declared.

A table is tried once for each shape of rows. One that was altered since may keep fewer values.
"""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

from penstock.core.codec.document import decode, encode_document
from penstock.core.codec.fields import integer, items, mapping, require_fields, text
from penstock.core.model import Json, Publication, Totals
from penstock.errors import Refused
from penstock.sink.dbapi.database import has
from penstock.sink.dbapi.driver import Session
from penstock.sink.dbapi.statements import IS_SQLITE, Sql, statement
from penstock.sink.dbapi.trial import TrialResult
from penstock.sink.table.marker import minus
from penstock.sink.table.publication import Loaded
from penstock.sink.table.target import NotStoredError, Target

FORMAT, VERSION = "penstock.dbapi-trial", 1

_OF_SQLITE = statement("SELECT sql FROM sqlite_master WHERE type = 'table' AND lower(name) = :folded")
_OF_OTHERS = statement("SELECT * FROM information_schema.columns WHERE table_name IN (:name, :folded, :raised)")
_HAS_COLUMNS = "SELECT 1 FROM information_schema.columns WHERE 1 = 0"

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


# --- tables that were altered since


def catalog_of(session: Session) -> Sql | None:
    """Return the query that `declared_of` runs, None if the database answers neither of the two. End the transaction."""
    if has(session, IS_SQLITE):
        return _OF_SQLITE
    return _OF_OTHERS if has(session, _HAS_COLUMNS) else None


def declared_of(session: Session, catalog: Sql | None, table: str) -> str:
    """Return a text that changes when the table is altered, and is always the same where the database does not show it.

    A table of that name in another schema counts, too: one trial too many costs less than one too few.
    """
    if catalog is None:
        return ""
    name = table.rpartition(".")[2]
    found = session.execute(catalog, {"name": name, "folded": name.lower(), "raised": name.upper()}).fetchall()
    return hashlib.sha256(repr(sorted(map(repr, found))).encode()).hexdigest()[:16]


def read_back(load: Callable[[], Loaded], content: Callable[[], Totals], publication: Publication, target: Target) -> Loaded:
    """Load into a table not known to keep the rows, and compare what it returns before the commit. Raise Refused."""
    batch = Totals(rows=publication.totals.rows, digest=publication.totals.digest)
    try:
        before = Totals() if target.write == "replace" else content()
        loaded = load()
        # A wrong number of rows is reported by the caller.
        kept = loaded.rows != batch.rows or content() == minus(before + batch, loaded.displaced)
    except NotStoredError as cause:
        raise _refused(target.table, f": {cause}") from cause
    if not kept:
        raise _refused(target.table, " as they are")
    return loaded


def _refused(table: str, what: str) -> Refused:
    return Refused(
        f"Table {table!r} was altered since it was tried, and does not give back the rows of the decided batch{what}.",
        remedy="Give its columns the types that they had, or create the table again with them and copy the rows. Then run "
        "`penstock recover`, which publishes the batch with the columns that it has, and start again.",
    )
