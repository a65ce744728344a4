"""The rig of a user-written sink over sqlite3, and one for each mistake that is easily made in such a sink."""

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from tests.conformance.lines_sink import Lines

from penstock.core.model import new_nonce
from penstock.sink.own import to_json_lines
from penstock.spark.schema import arrow_schema
from penstock.testing import OwnSinkRig, Row
from penstock.testing.conformance import SWAPPED


class MarkApart(Lines):
    """The mark is written in another transaction than the rows."""

    def write_rows(self, transaction, batch):
        super().write_rows(transaction, batch)
        transaction.execute("COMMIT")
        transaction.execute("BEGIN IMMEDIATE")


class MarkElsewhere(Lines):
    """The mark is in a file, and there before the rows are committed."""

    def write_mark(self, transaction, key, mark):
        Path(self.path + ".mark").write_text(mark)

    def read_mark(self, transaction, key):
        file = Path(self.path + ".mark")
        return file.read_text() if file.exists() else None


class AlwaysCommitting(Lines):
    """What failed half-way is committed, too."""

    @contextmanager
    def transaction(self):
        with closing(sqlite3.connect(self.path, timeout=30, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            finally:
                connection.execute("COMMIT")


class WithoutTransaction(Lines):
    """Every row commits by itself."""

    @contextmanager
    def transaction(self):
        with closing(sqlite3.connect(self.path, timeout=30, isolation_level=None)) as connection:
            yield connection


class Idempotent(MarkApart):
    """Rows are committed before the mark; a batch that is written again takes the place of what it wrote before."""

    idempotent = True

    def write_rows(self, transaction, batch):
        transaction.execute("DELETE FROM line WHERE batch = ?", [batch.key])
        super().write_rows(transaction, batch)


class NotIdempotent(MarkApart):
    """Says that writing a batch again changes nothing, and gives it another name each time."""

    idempotent = True

    def write_rows(self, transaction, batch):
        transaction.execute("DELETE FROM line WHERE batch = ?", [batch.key + new_nonce()])
        super().write_rows(transaction, batch)


class Forgetful(Lines):
    """Never finds its mark again."""

    def read_mark(self, transaction, key):
        return None


class Distinct(Lines):
    """Tells `verify` each row just once."""

    reading = "SELECT line FROM line GROUP BY line"


class HalfRead(Lines):
    """Leaves the second half of a batch."""

    def write_rows(self, transaction, batch):
        transaction.executemany("INSERT INTO line VALUES (?, ?)", [(batch.key, line) for line in to_json_lines(next(batch.rows))])


class LinesRig(OwnSinkRig):
    sink_type = Lines

    def options(self) -> Mapping[str, Any]:
        return {"path": str(self.directory / "lines.db")}

    def read_back(self) -> Sequence[Row]:
        if not (self.directory / "lines.db").exists():
            return []
        sink = self.make()
        with closing(sqlite3.connect(self.directory / "lines.db")) as connection:
            rows = Lines.read_rows(sink, connection, arrow_schema(self.schema))
            return [row for batch in rows for row in batch.to_pylist()]

    def damage(self, kind: str) -> None:
        newest = "(SELECT max(rowid) FROM line)"
        statement = {
            "lost": f"DELETE FROM line WHERE rowid = {newest}",
            "doubled": f"INSERT INTO line SELECT * FROM line WHERE rowid = {newest}",
            "changed": f"UPDATE line SET line = json_set(line, '$.name', 'other') WHERE rowid = {newest}",
            "foreign": f"INSERT INTO line SELECT batch, json_set(line, '$.id', -1) FROM line WHERE rowid = {newest}",
            "swapped": "UPDATE line SET line = json_set(line, '$.number', NULL, '$.price', '0.00') "
            f"WHERE json_extract(line, '$.id') = {SWAPPED}",
        }[kind]
        with closing(sqlite3.connect(self.directory / "lines.db")) as connection, connection:
            assert connection.execute(statement).rowcount == 1


class MarkApartRig(LinesRig):
    sink_type = MarkApart


class MarkElsewhereRig(LinesRig):
    sink_type = MarkElsewhere


class AlwaysCommittingRig(LinesRig):
    sink_type = AlwaysCommitting


class WithoutTransactionRig(LinesRig):
    sink_type = WithoutTransaction


class IdempotentRig(LinesRig):
    sink_type = Idempotent


class NotIdempotentRig(LinesRig):
    sink_type = NotIdempotent


class ForgetfulRig(LinesRig):
    sink_type = Forgetful


class DistinctRig(LinesRig):
    sink_type = Distinct


class HalfReadRig(LinesRig):
    sink_type = HalfRead
