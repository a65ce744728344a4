"""One chunk of rows, split by account and partition, against the same done row by row."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.unit.parquet_target import seeded

from penstock.core.model import AccountName, SinkName
from penstock.core.row_hash import digest, row_hashes
from penstock.errors import StageFailed
from penstock.sink.parquet.splitting import Chunk, Group, Splitter, WriteSettings

SCHEMA = pa.schema([("id", pa.int64()), ("place", pa.string()), ("flag", pa.bool_()), ("month", pa.int8())])
ACCOUNTS = tuple(AccountName(name) for name in ("a", "b", "c"))


def settings(*partition_by: str, unrouted: str | None = None, null_for_lost_texts: bool = False) -> WriteSettings:
    return WriteSettings(
        sink=SinkName("lake"),
        owner="1a2b3c4d",
        accounts=ACCOUNTS,
        unrouted=None if unrouted is None else AccountName(unrouted),
        partition_by=partition_by,
        null_for_lost_texts=null_for_lost_texts,
    )


def chunk(rows: Sequence[dict[str, Any]], routes: Sequence[str | None] | None) -> Chunk:
    table = pa.Table.from_pylist(list(rows), schema=SCHEMA)
    accounts = None if routes is None else pa.chunked_array([pa.array(routes, pa.string())])
    return Chunk(rows=table, hashes=np.asarray(row_hashes(table)), accounts=accounts)


def shown(groups: Iterator[Group] | list[Group]) -> dict[tuple[str, str], tuple[list[int], int]]:
    found = {(group.account, group.directories): (group.rows["id"].to_pylist(), group.digest) for group in groups}
    return {(str(account), directories): value for (account, directories), value in found.items()}


@pytest.mark.parametrize("places", [3, 40, 5000], ids=["few", "some", "more than the rows"])
def test_every_row_goes_where_it_belongs(places: int) -> None:
    rng = seeded()
    names = [None, *(f"p/{place}" for place in range(places))]
    rows = [
        {
            "id": number,
            "place": rng.choice(names),
            "flag": rng.choice([None, True, False]),
            "month": rng.choice([None, *range(-3, 12)]),
        }
        for number in range(4000)
    ]
    routes = [rng.choice(ACCOUNTS) for _ in rows]
    wanted: dict[tuple[str, str], list[int]] = defaultdict(list)
    for row, route in zip(rows, routes, strict=True):
        place = "__HIVE_DEFAULT_PARTITION__" if row["place"] is None else row["place"].replace("/", "%2F")
        month = "__HIVE_DEFAULT_PARTITION__" if row["month"] is None else row["month"]
        wanted[route, f"month={month}/place={place}"].append(row["id"])

    groups = Splitter(settings("month", "place"), SCHEMA).split(chunk(rows, routes))

    found = shown(groups)
    assert {key: ids for key, (ids, _) in found.items()} == wanted
    hashes = row_hashes(pa.Table.from_pylist(rows, schema=SCHEMA))
    for key, (ids, summed) in found.items():
        assert summed == digest(hashes.take(ids)), key
    assert all(group.rows.column_names == ["id", "flag"] for group in groups)
    assert sum(len(group.rows) for group in groups) == len(rows)


def test_one_place_needs_no_copy() -> None:
    rows = [{"id": number} for number in range(10)]
    (group,) = Splitter(settings(), SCHEMA).split(chunk(rows, None))
    assert group.account == "a"
    assert group.rows["id"].to_pylist() == list(range(10))


def test_rows_without_account_fail_or_go_to_the_named_one() -> None:
    rows = [{"id": number} for number in range(4)]
    for routes, told in ((["a", None, "b", "b"], "A row routes to the account null"), (["a", "x", "y", "b"], "2 rows .* 'x'")):
        with pytest.raises(StageFailed, match=told):
            Splitter(settings(), SCHEMA).split(chunk(rows, routes))
        found = shown(Splitter(settings(unrouted="c"), SCHEMA).split(chunk(rows, routes)))
        assert {key: ids for key, (ids, _) in found.items()} == {
            ("a", ""): [0],
            ("b", ""): found["b", ""][0],
            ("c", ""): found["c", ""][0],
        }
        assert sorted(found["b", ""][0] + found["c", ""][0]) == [1, 2, 3]


@pytest.mark.parametrize("lost", ["", "__HIVE_DEFAULT_PARTITION__"])
def test_texts_that_would_be_read_as_null_fail_or_are_null(lost: str) -> None:
    rows = [{"id": 0, "place": lost}, {"id": 1, "place": None}, {"id": 2, "place": lost}, {"id": 3, "place": "x"}]
    with pytest.raises(StageFailed, match=f"'place' holds the text '{lost}' in 2 rows"):
        Splitter(settings("place"), SCHEMA).split(chunk(rows, None))
    groups = Splitter(settings("place", null_for_lost_texts=True), SCHEMA).split(chunk(rows, None))
    nulls = [group for group in groups if group.directories == "place=__HIVE_DEFAULT_PARTITION__"]
    assert sorted(number for group in nulls for number in group.rows["id"].to_pylist()) == [0, 1, 2]
    stored = pa.Table.from_pylist([{"id": number} for number in range(3)], schema=SCHEMA)
    assert sum(group.digest for group in nulls) % 2**64 == digest(row_hashes(stored))


def test_values_that_have_no_text_are_refused() -> None:
    broken = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")])
    table = pa.Table.from_arrays([pa.array([1]), broken, pa.array([True]), pa.array([1], pa.int8())], schema=SCHEMA)
    made = Chunk(rows=table, hashes=np.zeros(1, np.uint64), accounts=None)
    with pytest.raises(StageFailed, match="'place' holds a value that has no text"):
        Splitter(settings("place"), SCHEMA).split(made)


def test_memory_is_let_go_when_the_last_of_the_small_groups_is_written() -> None:
    rows = [{"id": number, "place": "big" if number % 100 else f"small{number}"} for number in range(2000)]
    groups = Splitter(settings("place"), SCHEMA).split(chunk(rows, None))
    big = [group for group in groups if len(group.rows) > 100]
    small = [group for group in groups if len(group.rows) <= 100]
    assert len(big) == 1
    assert len({id(group.lease) for group in small}) == 1
    held_bytes = sum(group.lease.take() for group in small)
    assert 0 <= held_bytes - sum(group.size_bytes for group in small) < len(small)
    assert [group.lease.let_go() for group in small] == [0] * (len(small) - 1) + [held_bytes]


@pytest.mark.parametrize("routed", [False, True], ids=["one account", "three accounts"])
def test_more_combinations_of_values_than_a_64_bit_number_tells_apart(*, routed: bool) -> None:
    rng = seeded()
    names = [f"p{place}" for place in range(12)]
    schema = pa.schema([("id", pa.int64()), *((name, pa.int32()) for name in names)])
    rows = [{"id": number, **{name: rng.randrange(90) for name in names}} for number in range(2000)]
    routes = [rng.choice(ACCOUNTS) if routed else ACCOUNTS[0] for _ in rows]
    table = pa.Table.from_pylist(rows, schema=schema)
    accounts = pa.chunked_array([pa.array(routes, pa.string())]) if routed else None
    groups = Splitter(settings(*names), schema).split(Chunk(rows=table, hashes=np.asarray(row_hashes(table)), accounts=accounts))
    found = {number: (account, directories) for (account, directories), (ids, _) in shown(groups).items() for number in ids}
    assert found == {
        row["id"]: (route, "/".join(f"{name}={row[name]}" for name in names)) for row, route in zip(rows, routes, strict=True)
    }
