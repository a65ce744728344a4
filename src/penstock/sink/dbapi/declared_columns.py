"""How a table is declared, as far as its database tells: one that was altered since it was tried may keep less by now."""

import hashlib
from collections.abc import Callable

from penstock.core.model import Publication, Totals
from penstock.errors import Refused
from penstock.sink.dbapi.database import has
from penstock.sink.dbapi.driver import Session
from penstock.sink.dbapi.sql import Sql, statement
from penstock.sink.dbapi.statements import IS_SQLITE
from penstock.sink.table.marker import minus
from penstock.sink.table.publication import Loaded
from penstock.sink.table.target import NotStoredError, Target

_OF_SQLITE = statement("SELECT sql FROM sqlite_master WHERE type = 'table' AND lower(name) = :folded")
_OF_OTHERS = statement("SELECT * FROM information_schema.columns WHERE table_name IN (:name, :folded, :raised)")
_HAS_COLUMNS = Sql(("SELECT 1 FROM information_schema.columns WHERE 1 = 0",))


def catalog_of(session: Session) -> Sql | None:
    """The question that `declared_of` asks; None where the database answers neither. Ends the transaction."""
    if has(session, IS_SQLITE):
        return _OF_SQLITE
    return _OF_OTHERS if has(session, _HAS_COLUMNS) else None


def declared_of(session: Session, catalog: Sql | None, table: str) -> str:
    """Another text for a table that was altered; the same for all where the database does not tell.

    A table of that name in another schema counts, too: one look too many costs less than one too few.
    """
    if catalog is None:
        return ""
    name = table.rpartition(".")[2]
    found = session.execute(catalog, {"name": name, "folded": name.lower(), "raised": name.upper()}).fetchall()
    return hashlib.sha256(repr(sorted(map(repr, found))).encode()).hexdigest()[:16]


def read_back(load: Callable[[], Loaded], content: Callable[[], Totals], publication: Publication, target: Target) -> Loaded:
    """Move the rows into a table that is not known to keep them, and compare what it gives back, in the open transaction.

    Raises Refused.
    """
    batch = Totals(rows=publication.totals.rows, digest=publication.totals.digest)
    try:
        before = Totals() if target.write == "replace" else content()
        loaded = load()
        kept = loaded.rows != batch.rows or content() == minus(before + batch, loaded.displaced)  # the number is told elsewhere
    except NotStoredError as cause:
        raise _refused(target.table, f": {cause}") from cause
    if not kept:
        raise _refused(target.table, " as they are")
    return loaded


def _refused(table: str, what: str) -> Refused:
    return Refused(
        f"Table {table!r} was altered since it was tried, and does not give back the rows of the decided batch{what}.",
        remedy="Give its columns the types that they had, or make the table anew with them and copy the rows. Then run "
        "`penstock recover`, which publishes the batch with the columns that it has, and start again.",
    )
