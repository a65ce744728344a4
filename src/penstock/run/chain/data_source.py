"""A pipeline's table as a Python data source of Spark. Tasks find its classes by name. Needs PySpark 4.2, as other readers do.

```python
penstock.register_source(spark)
spark.readStream.format("penstock").option("sink", "lake").load("flights.yaml")
```
"""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from penstock.run.chain.stream import TableStream, with_columns
from penstock.source.chain.settings import FORMAT, settings_in
from penstock.source.piece_reader import LimitedPieceReader, carry_errors

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.run.chain.pieces import Piece
    from penstock.source.chain.settings import ChainSettings


class PenstockDataSource(DataSource):
    """The rows that a pipeline delivered into accounts, with the options of `settings_in`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        """Return the columns as of the newest batch of the table, unless Penstock has asked for them already."""
        with carry_errors():
            settings = settings_in(self.options)
            return StructType.fromJson(json.loads(settings.columns or columns_of(settings)))

    def streamReader(self, schema: StructType) -> "TableStreamReader":  # noqa: N802 - Spark's name
        """Return a reader: Spark uses one for the query's offsets, and one in each task."""
        with carry_errors():
            return TableStreamReader(with_columns(settings_in(self.options), schema.json()))


class TableStreamReader(LimitedPieceReader[TableStream]):
    """Reads files of whole batches. Picklable: what it has open is opened again."""

    def __init__(self, settings: "ChainSettings") -> None:
        super().__init__(TableStream(settings))

    def batches_of(self, piece: "Piece") -> "Iterator[pa.RecordBatch]":
        from penstock.run.chain.fetch import batches_of

        return batches_of(piece)

    def stop(self) -> None:
        """Close the ledger."""
        self._offsets.close()


def columns_of(settings: "ChainSettings") -> str:
    """Return Spark's JSON of the columns of the table that `settings` name. Raises what opening and reading it raise."""
    from penstock.run.chain.table import open_chained

    table = open_chained(settings)
    try:
        return table.columns()
    finally:
        table.close()
