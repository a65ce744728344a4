"""The parquet sink with accounts on a real server, looked at with that store's own client."""

import io
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from tests.servers.server import Outside, Place

from penstock.core.model import AccountName, SinkName
from penstock.sink.parquet import ParquetSink, object_account
from penstock.sink.parquet.layout import PartitionColumn
from penstock.testing.conformance import SWAPPED, Row, SinkRig, swapped
from penstock.testing.conformance.rig import PIPELINE

KINDS = {"place": pa.string(), "flag": pa.bool_()}


class ObjectRig(SinkRig):
    """Two accounts; `inline_limit_bytes` decides whether files are uploaded or travel inside the decision."""

    whole_batches = False
    partition_by: tuple[str, ...] = ("flag",)
    inline_limit_bytes = 0

    def __init__(self, directory: Path, places: Mapping[str, Place], outside: Mapping[str, Outside]) -> None:
        super().__init__(directory)
        self.places, self.outside = places, outside

    def make(self) -> ParquetSink:
        accounts = {AccountName(name): object_account(place.url, options=place.options) for name, place in self.places.items()}
        return ParquetSink(
            name=SinkName("lake"),
            pipeline=PIPELINE,
            accounts=accounts,
            route_sql="account",
            partition_by=self.partition_by,
            inline_limit_bytes=self.inline_limit_bytes,
        )

    def files(self) -> Iterator[tuple[str, str]]:
        """Account and key of what a reader that only lists finds."""
        for name in self.places:
            yield from ((name, key) for key in self.outside[name].listing() if "_penstock/" not in key)

    def read_back(self) -> Iterator[Row]:
        for name, key in self.files():
            values = dict(self._value(part) for part in key.split("/") if "=" in part)
            for row in pq.ParquetFile(io.BytesIO(self.outside[name].get(key))).read().to_pylist():
                yield {**row, **values}

    def _value(self, directory: str) -> tuple[str, object]:
        name, _, text = directory.partition("=")
        return name, PartitionColumn(name=name, index=0, kind=KINDS[name]).value_in(text)

    def unit_of(self, row: Row) -> object:
        return (row["id"] % len(self.places), *(row[column] for column in self.partition_by))

    def leftovers(self) -> list[str]:
        return sorted(f"{name}/{upload}" for name in self.places for upload in self.outside[name].uploads())

    def damage(self, kind: str) -> None:
        name, key = next(self.files())
        if kind == "swapped":
            name, key = next((name, key) for name, key in self.files() if SWAPPED in self._rows(name, key)["id"].to_pylist())
        outside = self.outside[name]
        if kind == "lost":
            outside.delete(key)
        elif kind == "doubled":
            outside.put(key.replace("part-", "copied-"), outside.get(key))
        elif kind == "foreign":
            outside.put(key.replace("part-", "foreign-"), _parquet(pa.table({"x": [1]})))
        elif kind == "swapped":
            outside.put(key, _parquet(swapped_in(self._rows(name, key))))
        elif kind == "moved":
            name, key, other = self._neighbours()
            changed = moved_between(self._rows(name, key), self._rows(name, other))
            for place, rows in zip((key, other), changed, strict=True):
                self.outside[name].put(place, _parquet(rows))
        else:
            rows = self._rows(name, key)
            column = rows.schema.get_field_index("number")
            outside.put(key, _parquet(rows.set_column(column, "number", pa.array([7] * len(rows), pa.int64()))))

    def _neighbours(self) -> tuple[str, str, str]:
        """An account, and the keys of two files in one folder of it."""
        files = list(self.files())
        pairs = ((account, one, key) for at, (account, key) in enumerate(files) for other, one in files[:at] if other == account)
        return next((account, one, key) for account, one, key in pairs if one.rpartition("/")[0] == key.rpartition("/")[0])

    def _rows(self, name: str, key: str) -> "pa.Table":
        return pq.ParquetFile(io.BytesIO(self.outside[name].get(key))).read()

    def lose_staging(self) -> None:
        for outside in self.outside.values():
            outside.lose_uploads()


class InlineRig(ObjectRig):
    """As small batches go."""

    inline_limit_bytes = 1 << 20


def swapped_in(rows: "pa.Table") -> "pa.Table":
    """The rows with that one's value in another column, as `swapped` moves it; the partition columns are not here."""
    changed = [swapped(row) if row["id"] == SWAPPED else row for row in rows.to_pylist()]
    return pa.Table.from_pylist(changed, schema=rows.schema)


def moved_between(ours: "pa.Table", theirs: "pa.Table") -> "tuple[pa.Table, pa.Table]":
    """Both with the first row of the other in the place of their own."""
    return pa.concat_tables([theirs[:1], ours[1:]]), pa.concat_tables([ours[:1], theirs[1:]])


def _parquet(rows: "pa.Table") -> bytes:
    file = io.BytesIO()
    pq.write_table(rows, file)
    return file.getvalue()
