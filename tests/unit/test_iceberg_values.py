"""Values of every kind in an Iceberg table: read back as they were, and found by their bounds."""

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema, index_by_name

from penstock.sink.iceberg.data_file import data_file
from penstock.sink.iceberg.table_schema import iceberg_schema
from penstock.sink.lake.log import TableFile
from penstock.sink.lake.statistics import STATISTICS, footer_notes
from penstock.sink.parquet.field_ids import with_field_ids
from penstock.sink.parquet.part_file import stored_schema
from penstock.spark.schema import arrow_schema

KINDS = {
    "texts": {"type": "array", "elementType": "string", "containsNull": True},
    "counts": {"type": "map", "keyType": "string", "valueType": "integer", "valueContainsNull": True},
    "point": {"type": "struct", "fields": [{"name": "x", "type": "long", "nullable": True, "metadata": {}}]},
    "seen": "timestamp",
    "local": "timestamp_ntz",
    "price": "decimal(12,2)",
    "tiny": "byte",
    "day": "date",
}
SEEN = dt.datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=dt.timezone.utc)
FULL = {
    "texts": ["p", None],
    "counts": [("k", 7)],
    "point": {"x": 5},
    "seen": SEEN,
    "local": SEEN.replace(tzinfo=None),
    "price": Decimal("-1.50"),
    "tiny": 3,
    "day": SEEN.date(),
}
FOUND = {
    "seen = '2026-01-02T03:04:05.678901+00:00'": 1,
    "local = '2026-01-02T03:04:05.678901'": 1,
    "price = -1.50": 1,
    "tiny = 3": 1,
    "day = '2026-01-02'": 1,
    "price = 9.00": 0,
    "tiny = 4": 0,
    "day is null": 1,
}


def test_values_are_read_back_and_found(tmp_path: Path) -> None:
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in KINDS.items()]
    text = json.dumps({"type": "struct", "fields": fields})
    catalog = SqlCatalog("default", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("shop")
    table = catalog.create_table("shop.kinds", Schema.model_validate_json(iceberg_schema(text)))
    schema = with_field_ids(stored_schema(arrow_schema(text)), index_by_name(table.schema()))
    rows, footers = [FULL, dict.fromkeys(KINDS)], list[pq.FileMetaData]()
    path = tmp_path / "rows.parquet"
    with pq.ParquetWriter(path, schema, metadata_collector=footers, store_schema=False) as writer:
        writer.write_table(pa.Table.from_pylist(rows, schema=schema))
    statistics = str(footer_notes(footers[0], schema)[STATISTICS])
    file = TableFile(path=path.name, size_bytes=path.stat().st_size, values={}, statistics=statistics)
    with table.transaction() as transaction, transaction.update_snapshot().merge_append() as append:
        append.append_data_file(data_file(file, table.schema(), location=f"file://{path}", spec=table.spec()))
    assert table.scan().to_arrow().to_pylist() == rows
    assert {query: table.scan(row_filter=query).to_arrow().num_rows for query in FOUND} == FOUND
