"""Checks of the ledger's table in PostgreSQL: that it exists, and that it does not lose rows."""

from penstock.errors import GuaranteeTooWeak, LedgerMismatch
from penstock.ledger.database import KEY, LEDGER_TABLE
from penstock.sql.postgres.database import Connection
from penstock.sql.postgres.statements import TABLE_KIND, TABLE_UNIQUES
from penstock.sql.table_name import in_double_quotes


def has_table(connection: Connection, schema: str) -> bool:
    """Return whether the ledger's table, or anything of its name, exists."""
    return connection.execute(TABLE_KIND, (schema, LEDGER_TABLE)).fetchone() is not None


def require_table(connection: Connection, schema: str, *, location: str) -> None:
    """Raise LedgerMismatch or GuaranteeTooWeak unless it is a logged table with the ledger's primary key."""
    row = connection.execute(TABLE_KIND, (schema, LEDGER_TABLE)).fetchone()
    assert row is not None
    oid, kind, persistence, _, _ = row
    if kind == "r" and persistence != "p":
        raise GuaranteeTooWeak(
            f"The table {LEDGER_TABLE} of the ledger {location} is unlogged, so a crash of the server empties it.",
            remedy=f"ALTER TABLE {in_double_quotes(schema, LEDGER_TABLE)} SET LOGGED.",
        )
    uniques = [frozenset(names) for (names,) in connection.execute(TABLE_UNIQUES, (oid,)).fetchall()]
    if kind != "r" or KEY not in uniques:
        raise LedgerMismatch(
            f"{LEDGER_TABLE} of the ledger {location} is no table with the primary key (pipeline, position).",
            remedy="Restore the table from a backup, with its key.",
        )
