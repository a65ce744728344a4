"""Partitions of a table in PostgreSQL and tables that inherit from it, at any depth: each must be as durable as the table.

Needs no client of PostgreSQL: the dbapi sink asks the same over any driver.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from penstock.errors import GuaranteeTooWeak, Refused

_KINDS = {"v": "view", "m": "materialized view", "f": "foreign table", "p": "partitioned table", "S": "sequence", "r": "table"}

MEMBERS: Final = """
WITH RECURSIVE below (oid, parent) AS (
    SELECT i.inhrelid, i.inhparent FROM pg_catalog.pg_inherits i WHERE i.inhparent = {oid}
    UNION SELECT i.inhrelid, i.inhparent FROM pg_catalog.pg_inherits i JOIN below b ON i.inhparent = b.oid
) SELECT b.oid, pg_catalog.quote_ident(ms.nspname) || '.' || pg_catalog.quote_ident(m.relname) AS named,
         pg_catalog.quote_ident(ps.nspname) || '.' || pg_catalog.quote_ident(p.relname) AS parent
FROM below b
JOIN pg_catalog.pg_class m ON m.oid = b.oid JOIN pg_catalog.pg_namespace ms ON ms.oid = m.relnamespace
JOIN pg_catalog.pg_class p ON p.oid = b.parent JOIN pg_catalog.pg_namespace ps ON ps.oid = p.relnamespace
"""
"""All partitions and inheriting tables of the table `{oid}`, at any depth, once per parent; both names as in SQL."""

WEAK_MEMBERS: Final = f"""
SELECT m.oid, CAST(m.relname AS text) AS name, b.named, b.parent, m.relispartition AS is_partition,
       CAST(m.relkind AS text) AS kind, CAST(m.relpersistence AS text) AS persistence
FROM ({MEMBERS}) b JOIN pg_catalog.pg_class m ON m.oid = b.oid
WHERE m.relkind NOT IN ('r', 'p') OR m.relpersistence = 'u'
"""  # noqa: S608 - both parts are our own
"""Those of them that do not keep rows as a logged table does: `member_of` takes the columns after `oid`, in their order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A partition, or a table that inherits. `named` is its name in SQL, `parent` that of the table directly above it."""

    name: str
    named: str
    parent: str
    is_partition: bool
    kind: str
    logged: bool

    def of(self, table: str) -> str:
        """Describe the member in relation to `table`, as the subject of an error message."""
        if self.is_partition:
            return partition_of(self.name, table)
        return f"Table {self.name!r}, which inherits from table {table!r},"


def kind_named(kind: str) -> str:
    """Return the name of a relation's kind (`pg_class.relkind`) for messages."""
    return _KINDS.get(kind, f"relation of kind {kind}")


def member_of(found: Sequence[Any]) -> Member:
    """Build a member from its columns in the result of `WEAK_MEMBERS`."""
    name, named, parent, is_partition, kind, persistence = found
    logged = persistence == "p"
    return Member(name=name, named=named, parent=parent, is_partition=is_partition, kind=kind_named(kind), logged=logged)


def partition_of(name: str, table: str) -> str:
    """Describe the partition `name` of `table`, as the subject of an error message."""
    return f"Partition {name!r} of table {table!r}"


def unlogged(what: str, named: str) -> GuaranteeTooWeak:
    """Return the error for an unlogged table: `what` describes it to people, `named` is its name in SQL."""
    return GuaranteeTooWeak(
        f"{what} is unlogged, so a crash of the server empties it.", remedy=f"ALTER TABLE {named} SET LOGGED."
    )


def require_lasting_members(weak: Sequence[Member], table: str) -> None:
    """Raise GuaranteeTooWeak for the first member that is unlogged, Refused for one whose rows this database does not commit."""
    for member in weak:
        what = member.of(table)
        if member.kind == "table" and not member.logged:
            raise unlogged(what, member.named)
        if member.kind not in {"table", "partitioned table"}:
            away = f"ALTER TABLE {member.parent} DETACH PARTITION {member.named}"
            remedy = away if member.is_partition else f"ALTER FOREIGN TABLE {member.named} NO INHERIT {member.parent}"
            raise Refused(
                f"{what} is a {member.kind}, whose rows this database does not commit.", remedy=f"{remedy}, and start again."
            )
