"""A column must keep its type in an account, whichever file a look at the directory finds first."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from tests.unit.parquet_target import Target, attempt, decide

from penstock.core.row_hash import row_hashes
from penstock.errors import Refused
from penstock.protocols import SCHEMA_KEY
from penstock.spark.schema import arrow_schema


def schema(**columns: str) -> str:
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in columns.items()]
    return json.dumps({"type": "struct", "fields": fields})


def deliver(target: Target, columns: str, *, batch_id: int) -> None:
    sink = target.sink(schema=columns)
    kinds = arrow_schema(columns).with_metadata({SCHEMA_KEY: columns.encode()})
    rows = pa.RecordBatch.from_pylist([{"id": batch_id}], schema=kinds)
    writer = sink.stager().open(attempt(batch_id), kinds)
    writer.write(rows, hashes=row_hashes(rows), accounts=None)
    sink.publish(decide(writer.finish(), position=batch_id + 2, batch_id=batch_id, schema=columns))


@pytest.mark.parametrize("turn", range(8))
def test_a_column_that_came_later_keeps_its_type(tmp_path: Path, turn: int) -> None:
    """The order of a directory is arbitrary, so more than one is looked at."""
    target = Target(tmp_path / str(turn))
    deliver(target, schema(id="long"), batch_id=0)
    deliver(target, schema(id="long", more="integer"), batch_id=1)
    with pytest.raises(Refused, match="Column 'more' is int32 in the files"):
        target.sink(schema=schema(id="long", more="string"))
