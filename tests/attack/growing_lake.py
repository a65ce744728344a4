"""Tables of open formats whose rows, settings and drivers change between two starts; read by their library and by DuckDB."""

from collections import Counter

import duckdb
import pyarrow as pa
from tests.attack.changing_table import ChangingTable
from tests.conformance import delta_rig, iceberg_rig

from penstock.core.model import SinkName
from penstock.sink.lake.keyed_sink import lake_sink
from penstock.sink.lake.write_mode import BY_KEY, WriteMode
from penstock.sink.spool import Spool
from penstock.testing.conformance import Bench
from penstock.testing.conformance.rig import PIPELINE

RIGS = {"delta": delta_rig.DeltaRig, "iceberg": iceberg_rig.IcebergRig}


class SettingRig:
    """A rig whose sink has settings of its own each time. `scan`: the table as its library reads it.

    `maintenance`: returns that of a sink with a given log.
    """

    def make(self, *, write="append", key=(), maintenance=None, **settings):
        spool = Spool(root=str(self.directory / "spool"), sink=SinkName("lake"), inline_limit_bytes=0)
        mode = WriteMode(write=write, key=tuple(key) if write in BY_KEY else ())
        log = self.log()
        return lake_sink(
            name=SinkName("lake"),
            pipeline=PIPELINE,
            account=self.account(),
            log=log,
            mode=mode,
            spool=spool,
            inline_limit_bytes=0,
            maintenance=None if maintenance is None else maintenance(log),
            **settings,
        )


class DeltaTable(SettingRig, delta_rig.DeltaRig):
    @property
    def root(self):
        return self.directory / "lake" / "orders"

    def scan(self):
        return pa.table(self.table().scan())

    def files(self):
        return self.table().file_uris()

    def add_column(self, name, kind):
        self.table().alter.add_columns(delta_rig_field(name, kind))

    def set_null(self, name):
        self.table().update(updates={name: "NULL"}, predicate="id IS NOT NULL")


class IcebergTable(SettingRig, iceberg_rig.IcebergRig):
    def scan(self):
        return self.table().scan().to_arrow()

    def files(self):
        return [str(iceberg_rig.local(file)) for file in self.active()]

    def add_column(self, name, kind):
        from pyiceberg.types import LongType, StringType

        with self.table().update_schema() as update:
            update.add_column(name, {"long": LongType, "string": StringType}[kind]())

    def set_null(self, name):
        table = self.table()
        rows = table.scan().to_arrow()
        at = rows.schema.get_field_index(name)
        table.overwrite(rows.set_column(at, rows.schema.field(at), pa.nulls(len(rows), rows.schema.field(at).type)))


def delta_rig_field(name, kind):
    from deltalake import Field
    from deltalake.schema import PrimitiveType

    return [Field(name, PrimitiveType(kind), nullable=True)]


TABLES = {"delta": DeltaTable, "iceberg": IcebergTable}


class GrowingLake(ChangingTable):
    """`content` is what both readers see."""

    def __init__(self, directory, kind, **settings):
        super().__init__(Bench(TABLES[kind](directory)), **{"schema_changes": "add", **settings})

    @property
    def rig(self):
        return self.bench.rig

    def content(self, *names):
        found = self.rig.scan()
        rows = Counter(zip(*(found[name].to_pylist() for name in names), strict=True))
        read = f"read_parquet({self.rig.files()}, union_by_name = true)"
        if self.rig.files() and not self.settings.get("partition_by"):  # whose values are in no file
            there = {column for (column, *_) in duckdb.sql(f"DESCRIBE SELECT * FROM {read}").fetchall()}
            columns = ", ".join(f'"{name}"' if name in there else "NULL" for name in names)
            assert Counter(duckdb.sql(f"SELECT {columns} FROM {read}").fetchall()) == rows
        return rows

    def columns_there(self):
        return self.rig.scan().column_names
