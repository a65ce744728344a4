"""The demo's own comparison must see a lost, a doubled and a changed row, and a reader what it should not."""

import sqlite3
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from tests.architecture.reading import ROOT

HEADER = (
    "year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,carrier,flight,tailnum,origin,dest,"
    "air_time,distance,hour,minute,time_hour"
)
LINES = [
    f"2013,{1 + number % 3},4,{'NA' if number % 5 == 0 else 517},515,2,830,819,11,UA,{number // 2},N1,{origin},IAH,227,1400,5,15,"
    "2013-01-01T10:00:00Z"
    for number, origin in enumerate(["EWR", "JFK", "LGA", "EWR", "EWR", "JFK", "LGA", "LGA", "EWR", "EWR"])
] + ["2013,1,1,1,1,1,1,1,1,AA,7,N2,EWR,IAH,1,1,1,1,2013-01-01T10:00:00Z"] * 2


@pytest.fixture
def proof(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[object]:
    monkeypatch.syspath_prepend(str(ROOT / "demo"))
    import proof

    packed = tmp_path / "flights.csv.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("flights.csv", "\n".join([HEADER, *LINES]) + "\n")
    monkeypatch.setattr(proof, "packed_csv", lambda: packed)
    yield proof
    for name in ("proof", "flights", "reader"):
        sys.modules.pop(name, None)


@pytest.fixture
def work(proof: object, tmp_path: Path) -> Path:
    """A delivery of the lines, made without Penstock."""
    work = tmp_path / "work"
    csv = pa.BufferReader("\n".join([HEADER, *LINES]).encode())
    options = pyarrow.csv.ConvertOptions(strings_can_be_null=True, null_values=["NA"])
    table = pyarrow.csv.read_csv(csv, convert_options=options)
    rows = table.to_pylist()
    for number, row in enumerate(rows):
        folder = work / "lake" / row["origin"] / f"month={row['month']}"
        folder.mkdir(parents=True, exist_ok=True)
        pyarrow.parquet.write_table(table.slice(number, 1).drop_columns(["month"]), folder / f"part-{number}.parquet")
    with sqlite3.connect(work / "warehouse.db") as connection:
        connection.execute(f"CREATE TABLE flights ({', '.join(rows[0])})")
        stored = [(*list(row.values())[:-1], f"{row['time_hour']:%Y-%m-%d %H:%M:%S}.000000Z") for row in rows]
        connection.executemany(f"INSERT INTO flights VALUES ({', '.join('?' * len(rows[0]))})", stored)
    connection.close()
    return work


def test_a_good_delivery_is_exact_and_equal_rows_count_twice(proof, work: Path) -> None:
    places = proof.compare(work)
    assert [place.name for place in places] == ["lake EWR", "lake JFK", "lake LGA", "warehouse"]
    assert all(place.exact for place in places)
    assert [place.found for place in places] == [7, 2, 3, 12]
    assert proof.rows_now(work) == {place.name: place.found for place in places}


def test_a_lost_file_is_missing(proof, work: Path) -> None:
    next((work / "lake" / "JFK").rglob("*.parquet")).unlink()
    jfk = proof.compare(work)[1]
    assert (jfk.missing, jfk.doubled, jfk.exact) == (1, 0, False)


def test_a_copied_file_is_doubled_even_where_equal_rows_are_expected(proof, work: Path) -> None:
    source = work / "lake" / "EWR" / "month=1" / "part-11.parquet"
    (source.parent / "copy.parquet").write_bytes(source.read_bytes())
    ewr = proof.compare(work)[0]
    assert (ewr.missing, ewr.doubled, ewr.exact) == (0, 1, False)


def test_a_changed_value_is_missing_and_doubled(proof, work: Path) -> None:
    with sqlite3.connect(work / "warehouse.db") as connection:
        connection.execute("UPDATE flights SET dep_time = 518 WHERE rowid = 2")
    connection.close()
    warehouse = proof.compare(work)[3]
    assert (warehouse.missing, warehouse.doubled, warehouse.exact) == (1, 1, False)


def test_hidden_names_are_no_data_and_a_torn_or_vanished_file_is_seen(proof, work: Path) -> None:
    from reader import Reader

    (work / "lake" / "EWR" / "_hidden.parquet").write_bytes(b"no parquet")
    reader = Reader(work)
    reader._look()
    assert (len(reader.seen), reader.torn, reader.vanished) == (12, set(), set())
    torn = work / "lake" / "LGA" / "torn.parquet"
    torn.write_bytes(b"PAR1")
    gone = next((work / "lake" / "JFK").rglob("*.parquet"))
    gone.unlink()
    reader._look()
    assert (reader.torn, reader.vanished) == ({torn}, {gone})
