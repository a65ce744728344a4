"""A table on what stands in for SQL Server, which a person alters in T-SQL behind the sink's back."""

import re

from tests.unit import sqlserver_target

NAME = r"(?:\[(?P<quoted>[^\]]+)\]|(?P<bare>\w+))"
OF_TABLE = r"ALTER TABLE (?:t|\[dbo\]\.\[t\]) "
ADDED = re.compile(rf"{OF_TABLE}ADD {NAME} (?P<type>[\w()]+)(?P<default> DEFAULT \w+)?")
ALTERED = re.compile(rf"{OF_TABLE}ALTER COLUMN {NAME} (?P<type>[\w()]+)(?P<required> NOT)? NULL")
DROPPED = re.compile(rf"{OF_TABLE}DROP COLUMN {NAME}")
RENAMED = re.compile(r"EXEC sp_rename 't\.(\w+)', '(\w+)', 'COLUMN'")

PLACE = "dbo.t"
TYPES = {"bigint": ("bigint", 8, None), "nvarchar(max)": ("nvarchar", -1, "SQL_Latin1_General_CP1_CI_AS")}
"""Name, length and collation in the catalog."""


class TableRig(sqlserver_target.TableRig):
    """`sql` takes statements that alter the table, too: in SQLite, and in what the stand-in's catalog says."""

    def sql(self, *statements):
        found = []
        for statement in statements:
            altered = self._altered(statement)
            if altered is None:
                found = super().sql(statement)
                continue
            with self.session() as connection:
                for step, *values in altered:
                    connection.execute(step, values)
        return found

    def _altered(self, statement):
        """The statements of SQLite that do the same, each with its values; None for another statement."""
        if found := ADDED.fullmatch(statement):
            name, (kind, length, collation) = _name(found), TYPES[found["type"]]
            columns = "place, name, type, length, precision, scale, collation, nullable, filled"
            values = (PLACE, name, kind, length, 0, 0, collation, 1, int(found["default"] is not None))
            return [
                (f'ALTER TABLE "{PLACE}" ADD COLUMN "{name}"{found["default"] or ""}',),
                (f'INSERT INTO "double.column" ({columns}) VALUES ({", ".join("?" * len(values))})', *values),
            ]
        if found := ALTERED.fullmatch(statement):
            change = 'UPDATE "double.column" SET nullable = ? WHERE place = ? AND name = ?'
            return [(change, int(found["required"] is None), PLACE, _name(found))]
        if found := DROPPED.fullmatch(statement):
            name = _name(found)
            return [
                (f'ALTER TABLE "{PLACE}" DROP COLUMN "{name}"',),
                ('DELETE FROM "double.column" WHERE place = ? AND name = ?', PLACE, name),
            ]
        if found := RENAMED.fullmatch(statement):
            before, after = found.groups()
            return [
                (f'ALTER TABLE "{PLACE}" RENAME COLUMN "{before}" TO "{after}"',),
                ('UPDATE "double.column" SET name = ? WHERE place = ? AND name = ?', after, PLACE, before),
            ]
        assert not statement.startswith(("ALTER", "EXEC")), statement
        return None


def _name(found):
    return found["quoted"] or found["bare"]
