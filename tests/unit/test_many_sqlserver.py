"""Many tables in what stands in for SQL Server, whose bulk loads share the name of one temporary table."""

import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from tests.servers import tsql
from tests.unit.table_target import spark_schema

from penstock.core.model import ONLY_ACCOUNT, AccountName, SinkName
from penstock.core.table_names import TableNames
from penstock.sink.many.database import many_tables
from penstock.sink.sqlserver.sink import SqlserverSink
from penstock.testing.conformance import Bench, Row, SinkRig

TABLES = (AccountName("a_t"), AccountName("b_t"))


class Rig(SinkRig):
    schema = spark_schema(id="long", name="string")

    def make(self) -> Any:
        sink: Any = many_tables(
            SqlserverSink,
            TableNames(template="{x}_t", pattern=".*"),
            prefix="",
            unrouted="fail",
            puts_invalid_aside=False,
            name=SinkName("shop"),
            spool=str(self.directory / "spool"),
            url="sqlserver://penstock:secret@localhost/shop?ssl_mode=disabled",
            lock_timeout_s=0.2,
            connect=partial(tsql.connect, self.directory),
        )
        sink.use_tables(TABLES[:1])
        return sink

    def read_back(self) -> Iterator[Row]:
        with closing(sqlite3.connect(self.directory / "shop.db")) as connection:
            for table in TABLES:
                for number, name in connection.execute(f'SELECT id, name FROM "dbo.{table}"'):
                    yield {"id": number, "name": name}


def test_a_batch_is_in_all_tables_and_a_replay_changes_nothing(tmp_path: Path) -> None:
    tsql.WATCH.said.clear()
    bench = Bench(Rig(tmp_path))
    sink: Any = bench.sink()
    sink.open_tables(TABLES)
    shown = [bench.deliver(sink, [{"id": at, "name": f"n{at}"} for at in range(8 * n, 8 * n + 8)], batch_id=n) for n in range(3)]
    assert sink.publish(shown[-1].publication).already
    assert Counter(row["id"] for row in bench.rig.read_back()) == Counter(range(24))
    marks = [sink.high_water_mark(account, pipeline=shown[0].publication.pipeline) for account in (ONLY_ACCOUNT, *TABLES)]
    assert {mark.position for mark in marks} == {shown[-1].publication.position}
    assert bench.verify(sink).ok
    bench.close()
