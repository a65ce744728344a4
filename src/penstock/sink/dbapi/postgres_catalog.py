"""What PostgreSQL's catalog says of tables behind any driver: whether they keep their rows, show all of them, and take all.

A trial with a rollback shows that a database has transactions. It does not show whether a crash of the server empties a table.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from penstock.errors import Refused
from penstock.sink.dbapi.driver import Session
from penstock.sink.dbapi.statements import BATCH_TABLE, MARKER_TABLE, statement
from penstock.sink.table.target import Target, not_a_table
from penstock.sql.postgres.members import (
    WEAK_MEMBERS,
    Member,
    kind_named,
    member_of,
    require_lasting_members,
    unlogged,
)
from penstock.sql.table_name import in_double_quotes

_INSTEAD: Final = """
       (SELECT min(CAST(r.rulename AS text)) FROM pg_catalog.pg_rewrite r
        WHERE r.ev_class = c.oid AND r.is_instead AND r.ev_type = '{event}')
"""
_LOOK: Final = statement(f"""
WITH asked (place, oid) AS (
    SELECT 0, CAST(pg_catalog.to_regclass(CAST(:name AS text)) AS oid)
    UNION ALL SELECT 1, CAST(pg_catalog.to_regclass('{MARKER_TABLE}') AS oid)
    UNION ALL SELECT 2, CAST(pg_catalog.to_regclass('{BATCH_TABLE}') AS oid)
)
SELECT a.place, pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.relname),
       CAST(c.relkind AS text), CAST(c.relpersistence AS text),
       CASE WHEN pg_catalog.row_security_active(c.oid) THEN CAST(current_user AS text) END,
       {_INSTEAD.format(event=3)}, {_INSTEAD.format(event=4)},
       w.name, w.named, w.parent, w.is_partition, w.kind, w.persistence
FROM asked a
JOIN pg_catalog.pg_class c ON c.oid = a.oid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN LATERAL ({WEAK_MEMBERS.format(oid="a.oid")}) w ON true
ORDER BY a.place, w.oid
""")  # noqa: S608 - all parts are our own, every value is bound
"""One row for each table that is there, or for each of its weak members. The driver need not know arrays or JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """A table as the catalog describes it, and one of its weak members. `table`: its name for people, `named`: in SQL.

    `hidden_from`: the role to which row security shows only some rows. `insteads`: the first rule `DO INSTEAD`, by its event.
    """

    table: str
    named: str
    kind: str
    persistence: str
    hidden_from: str | None
    insteads: dict[str, str | None]
    weak_member: Member | None

    @property
    def is_partitioned(self) -> bool:
        return self.kind == "partitioned table"

    def require_lasting(self) -> None:
        """Raise GuaranteeTooWeak or Refused unless the table and its member keep their rows."""
        if self.persistence == "t":
            raise not_a_table(self.table, "a temporary table")
        if self.kind not in {"table", "partitioned table"}:
            raise not_a_table(self.table, f"a {self.kind}")
        if self.persistence != "p" and not self.is_partitioned:  # a partitioned table holds no row itself
            raise unlogged(f"Table {self.table!r}", self.named)
        require_lasting_members([self.weak_member] if self.weak_member else [], self.table)

    def require_all_rows(self) -> None:
        """Raise Refused if row security hides rows of the table: a hidden marker would let its batch be published again."""
        if self.hidden_from is not None:
            raise Refused(
                f"Row security of table {self.table!r} applies to role {self.hidden_from!r}, which hides rows from it.",
                remedy=f"ALTER ROLE {in_double_quotes(self.hidden_from)} BYPASSRLS, or "
                f"ALTER TABLE {self.named} DISABLE ROW LEVEL SECURITY.",
            )

    def require_no_rule(self, event: str) -> None:
        """Raise Refused for a rule that runs something else in place of `event`: rows count as written that are not there."""
        rule = self.insteads[event]
        if rule is not None:
            raise Refused(
                f"Table {self.table!r} has the rule {rule!r}, which does something else in place of each {event}.",
                remedy=f"DROP RULE {in_double_quotes(rule)} ON {self.named}, or use a trigger.",
            )


def has_catalog(session: Session, named: str) -> bool:
    """Return whether the database has the catalog of PostgreSQL 10 or later. `named`: see `require_kept`. End the transaction."""
    try:
        session.execute(_LOOK, {"name": named}).fetchall()
    except session.driver.error:
        return False
    finally:
        session.rollback()
    return True


def require_kept(session: Session, target: Target, named: str) -> bool:
    """Raise GuaranteeTooWeak or Refused unless the target's table and Penstock's own keep, show and take all rows.

    `named`: the table's name in SQL. Tables that are missing pass. Return whether one of them is partitioned: ATTACH PARTITION
    waits for no writer, so that rows may go into a partition that was not there when this function looked.
    """
    found = [_relation_of(row, target) for row in session.execute(_LOOK, {"name": named}).fetchall()]
    for relation in found:
        relation.require_lasting()
        relation.require_all_rows()
        if relation.table == target.table:
            for event in ("INSERT", "DELETE") if target.write == "replace" else ("INSERT",):
                relation.require_no_rule(event)
    return any(relation.is_partitioned for relation in found)


def _relation_of(row: Sequence[Any], target: Target) -> Relation:
    place, named, kind, persistence, hidden_from, insert, delete, *member = row
    return Relation(
        table=(target.table, MARKER_TABLE, BATCH_TABLE)[place],
        named=named,
        kind=kind_named(kind),
        persistence=persistence,
        hidden_from=hidden_from,
        insteads={"INSERT": insert, "DELETE": delete},
        weak_member=None if member[0] is None else member_of(member),
    )
