"""Looks at the result without Penstock: PyArrow and sqlite3 read what is there, and every row is compared with the CSV file."""

import sqlite3
import zipfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.parquet
from flights import COLUMNS, NUMBERS, ROWS, TEXTS, packed_csv, sample

AIRPORTS = ("EWR", "JFK", "LGA")
WAREHOUSE = "warehouse"
Rows = Counter[tuple[object, ...]]


@dataclass(frozen=True)
class Place:
    """One place that was delivered to: an account of the lake, or the warehouse."""

    name: str
    files: int
    expected: int
    found: int
    missing: int
    doubled: int

    @property
    def exact(self) -> bool:
        """Whether the place holds every expected row as often as it was sent, and no other."""
        return (self.missing, self.doubled) == (0, 0) and self.found == self.expected


def lake(airport: str) -> str:
    """What the account of an airport is called in the demo's tables."""
    return f"lake {airport}"


def compare(work: Path, flights: int = ROWS) -> list[Place]:
    """Every place against so many `flights` of the CSV file, row by row and counting repeats: two equal rows must be two."""
    sent = _from_csv(flights)
    places = []
    for airport in AIRPORTS:
        expected = Counter({row: count for row, count in sent.items() if row[COLUMNS.index("origin")] == airport})
        places.append(_place(lake(airport), len(parquet_files(work, airport)), expected, _from_lake(work, airport)))
    return [*places, _place(WAREHOUSE, 1, sent, _from_warehouse(work))]


def rows_now(work: Path) -> dict[str, int]:
    """How many rows a reader of each place sees at this moment."""
    accounts = {lake(airport): sum(map(_rows, parquet_files(work, airport))) for airport in AIRPORTS}
    return accounts | {WAREHOUSE: _query(work, "SELECT count(*) FROM flights")[0][0] if _has_table(work) else 0}


def parquet_files(work: Path, airport: str) -> list[Path]:
    """What a reader of the account takes for data, as Spark, Hive and PyArrow do: no name that begins with `_` or `.`."""
    root = work / "lake" / airport
    return sorted(path for path in root.rglob("*") if path.is_file() and is_data(path.relative_to(root)))


def is_data(path: Path) -> bool:
    """Whether readers look at a file of that name."""
    return not any(part.startswith(("_", ".")) for part in path.parts)


def _place(name: str, files: int, expected: Rows, found: Rows) -> Place:
    return Place(
        name=name,
        files=files,
        expected=expected.total(),
        found=found.total(),
        missing=(expected - found).total(),
        doubled=(found - expected).total(),
    )


def _rows(path: Path) -> int:
    return int(pyarrow.parquet.read_metadata(path).num_rows)


def _counted(table: pa.Table) -> Rows:
    """The table's rows in one form whatever they were read from: numbers as numbers, the hour as text in UTC."""
    hours = table["time_hour"].cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us"))
    columns = [table[name].cast(pa.int64()) for name in NUMBERS] + [table[name] for name in TEXTS]
    return Counter(zip(*(column.to_pylist() for column in columns), map(str, hours.to_pylist()), strict=True))


def _from_csv(flights: int) -> Rows:
    options = pyarrow.csv.ConvertOptions(strings_can_be_null=True, null_values=["NA"])
    with zipfile.ZipFile(packed_csv()) as archive, archive.open("flights.csv") as file:
        table = pyarrow.csv.read_csv(file, convert_options=options)
    return _counted(table.take(pa.array(range(*sample(flights).indices(table.num_rows)))))


def _from_lake(work: Path, airport: str) -> Rows:
    root = work / "lake" / airport
    data = pyarrow.dataset.dataset(parquet_files(work, airport), partitioning="hive", partition_base_dir=str(root))
    return _counted(data.to_table())


def _from_warehouse(work: Path) -> Rows:
    rows = _query(work, "SELECT * FROM flights")
    names = [name for _, name, *_ in _query(work, "PRAGMA table_info(flights)")]
    order = [names.index(name) for name in COLUMNS]
    return Counter((*(row[place] for place in order[:-1]), str(row[order[-1]])[: len("2013-01-01 05:15:00")]) for row in rows)


def _has_table(work: Path) -> bool:
    return (work / "warehouse.db").exists() and bool(_query(work, "SELECT 1 FROM sqlite_master WHERE name = 'flights'"))


def _query(work: Path, sql: str) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(f"file:{work / 'warehouse.db'}?mode=ro", uri=True)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()
