"""What the rigs of all sinks share that fill a table: where staging is, how it is lost, and how published rows are damaged."""

import os
import shutil
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path

from penstock.core.model import SinkName
from penstock.sink.table.history import COLUMNS
from penstock.sink.table.sink import TableSinkArguments
from penstock.testing.conformance import SWAPPED, Row, SinkRig, make_rows
from penstock.testing.conformance.publishing import PublishContract, RaceContract
from penstock.testing.conformance.verifying import VerifyContract

GONE = "gone"
"""The name in rows that delete."""
OLDEST = -(2**63)
"""A number to which none is older."""


class DialectContract(PublishContract, RaceContract, VerifyContract):
    """What reaches a database in its dialect. Staging and sweeping are the engine's, which passes on SQLite and PostgreSQL."""


class TableRig(SinkRig):
    """The plainest one: append, small pieces inline. `quoted` is the table as SQL takes it, `newest` its highest id."""

    write = "append"
    key: tuple[str, ...] = ()
    inline_limit_bytes = 100_000
    quoted: str
    swapped_into = "price"
    """A column that is NULL where `number` is 0."""

    @property
    def newest(self) -> str:
        return f"(SELECT max(id) FROM {self.quoted})"

    def filling(self, table: str) -> TableSinkArguments:
        """What the sink is made with, whatever its database."""
        return {
            "name": SinkName("db"),
            "table": table,
            "spool": str(self.directory / "spool"),
            "write": self.write,
            "key": self.key,
            "inline_limit_bytes": self.inline_limit_bytes,
        }

    @abstractmethod
    def execute(self, statement: str) -> int:
        """Run `statement`, commit, and give the number of rows that it was about."""

    def leftovers(self) -> Sequence[str]:
        return [str(path) for path in self.directory.glob("spool/**/*") if path.is_file() and path.suffix != ".id"]

    def damage(self, kind: str) -> None:
        one = f"id = {self.newest}"
        statement = {
            "lost": f"DELETE FROM {self.quoted} WHERE {one}",
            "doubled": f"INSERT INTO {self.quoted} SELECT * FROM {self.quoted} WHERE {one}",
            "changed": f"UPDATE {self.quoted} SET name = 'other' WHERE {one}",
            "foreign": f"INSERT INTO {self.quoted} (id, place) VALUES (-1, 'foreign')",
            "swapped": f"UPDATE {self.quoted} SET number = NULL, {self.swapped_into} = 0 WHERE id = {SWAPPED}",
        }[kind]
        assert self.execute(statement) == 1


class Spooled(TableRig):
    """Every piece is a file, which may be lost."""

    inline_limit_bytes = 0

    def lose_staging(self) -> None:
        for path in self.leftovers():
            Path(path).unlink()


class DamagedSpool(Spooled):
    def lose_staging(self) -> None:
        for path in self.leftovers():
            data = bytearray(Path(path).read_bytes())
            data[len(data) // 2] ^= 1
            Path(path).write_bytes(data)


class TruncatedSpool(Spooled):
    def lose_staging(self) -> None:
        for path in self.leftovers():
            os.truncate(path, 1000)


class ForgottenSpool(Spooled):
    def lose_staging(self) -> None:
        shutil.rmtree(self.directory / "spool")


class Upserting(Spooled):
    write = "upsert"
    key = ("id", "place")


class Deleting(Upserting):
    """Some rows delete: the one before them in their batch, one of the batch before, or none."""

    has_deletes = True

    def filling(self, table: str) -> TableSinkArguments:
        return {**super().filling(table), "deletes": True}

    def rows(self, ids: Iterable[int]) -> list[Row]:
        return [self._deleting(number) if number % 7 == 3 else super(Deleting, self).rows([number])[0] for number in ids]

    def _deleting(self, number: int) -> Row:
        [meant] = super().rows([number - (1, 1000)[number % 2]])
        return {**meant, "name": GONE}

    def deletes(self, row: Row) -> bool:
        return bool(row["name"] == GONE)

    def settle(self, batches: Sequence[Sequence[Row]]) -> Iterable[Row]:
        last = {(row["id"], row["place"]): row for batch in batches for row in batch}
        return [row for row in last.values() if not self.deletes(row)]


class Newest(Upserting):
    """Some rows have the key of the one before them in their batch, or of one of the batch before: as new as that, or older."""

    def filling(self, table: str) -> TableSinkArguments:
        return {**super().filling(table), "sequence_by": "number"}

    def rows(self, ids: Iterable[int]) -> list[Row]:
        return [self._again(number) if number % 7 == 3 else self._plain(number) for number in ids]

    def _plain(self, number: int) -> Row:
        [row] = super().rows([number])
        return {**row, "number": row["number"] or 0}

    def _again(self, number: int) -> Row:
        meant = self._plain(number - (1, 1000)[number % 2])
        return {**meant, "name": "again", "number": OLDEST if number % 4 < 2 else meant["number"]}

    def settle(self, batches: Sequence[Sequence[Row]]) -> Iterable[Row]:
        there: dict[object, Row] = {}
        for row in (row for batch in batches for row in batch):
            old = there.get((row["id"], row["place"]))
            if old is None or row["number"] >= old["number"]:
                there[row["id"], row["place"]] = row
        return there.values()


class Versions(Newest):
    """Every version of a row stays. Of those of one key and one number the last one counts."""

    def filling(self, table: str) -> TableSinkArguments:
        return {**super().filling(table), "history": True}

    def read_back(self) -> Iterable[Row]:
        """The rows without the columns of the history."""
        return [{name: value for name, value in row.items() if name not in COLUMNS} for row in super().read_back()]

    def damage(self, kind: str) -> None:
        if kind != "foreign":
            super().damage(kind)
            return
        assert self.execute(f"INSERT INTO {self.quoted} (id, place, valid_from) VALUES (-1, 'foreign', 0)") == 1

    def settle(self, batches: Sequence[Sequence[Row]]) -> Iterable[Row]:
        return {(row["id"], row["place"], row["number"]): row for batch in batches for row in batch}.values()


class InsertingIfAbsent(Upserting):
    write = "insert_if_absent"


class Merging(Spooled):
    """SQL of the user's own, that adds the rows. Damage to them is not noticed, but that to the `marker` is."""

    write = "merge"
    marker = "penstock_marker"

    def damage(self, kind: str) -> None:
        if kind != "decided":
            super().damage(kind)
            return
        assert self.execute(f"UPDATE {self.marker} SET rows_decided = rows_decided + 1") == 1

    def filling(self, table: str) -> TableSinkArguments:
        columns = ", ".join(name for name in make_rows([0])[0])
        sql = f"INSERT INTO {{table}} ({columns}) SELECT {columns} FROM {{staged}}"
        return {**super().filling(table), "merge": sql}


class Replacing(Spooled):
    write = "replace"

    def settle(self, batches: Sequence[Sequence[Row]]) -> Iterable[Row]:
        return batches[-1] if batches else []


def rig_below(rig: type[TableRig], directory: Path) -> TableRig:
    """Of a rig that needs nothing but a directory: in one of its own, which the tests of crashes look at from beside."""
    (directory / "rig").mkdir()
    return rig(directory / "rig")


def named(rig: type[TableRig]) -> str:
    return rig.__name__
