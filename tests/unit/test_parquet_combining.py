"""Small files of several tasks become one before they are decided: which ones, and that nothing of their rows changes."""

import datetime as dt
import io
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.unit.parquet_target import attempt, seeded

from penstock.core.model import AccountName, Attempt, BatchId, Generation, SinkName, Staged, Totals
from penstock.core.row_hash import digest, row_hashes
from penstock.errors import StageFailed
from penstock.protocols import SCHEMA_KEY
from penstock.sink.lake.statistics import STATISTICS, FileNotes
from penstock.sink.parquet.account import Allowance, Finished, Upload, UploadArea
from penstock.sink.parquet.encoding import Encodings
from penstock.sink.parquet.splitting import WriteSettings
from penstock.sink.parquet.stager import CHUNK_ROWS, ParquetStager
from penstock.stage.combining import combined
from penstock.stage.staging import RowForm, SinkShare, StagePass

ACCOUNTS = (AccountName("a"), AccountName("b"))
SINK = SinkName("lake")
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("day", pa.int32()),
        ("text", pa.string()),
        ("long_text", pa.large_string()),
        ("kind", pa.dictionary(pa.int32(), pa.string())),
        ("amount", pa.decimal128(22, 3)),
        ("ratio", pa.float64()),
        ("short", pa.int16()),
        ("flag", pa.bool_()),
        ("raw", pa.binary()),
        ("date", pa.date32()),
        ("instant", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("took", pa.duration("us")),
        ("tags", pa.list_(pa.string())),
        ("counts", pa.map_(pa.string(), pa.int64())),
        ("nested", pa.struct([("x y", pa.list_(pa.struct([("n", pa.int64())]))), ("m", pa.map_(pa.string(), pa.float64()))])),
        ("nothing", pa.date32()),
    ],
    metadata={SCHEMA_KEY: b'{"type":"struct","fields":[{"name":"id"},{"name":"day"},{"name":"text"}]}'},
)


class InMemory(UploadArea):
    """A store that takes small files in the decision. What is uploaded is in `uploaded`."""

    def __init__(self) -> None:
        self.uploaded: dict[str, bytes] = {}

    def open(self, name: str, *, allowance: Allowance) -> Upload:
        return _Upload(self, name, allowance)


class _Upload(Upload):
    def __init__(self, area: InMemory, name: str, allowance: Allowance) -> None:
        self._area, self._name, self._allowance = area, name, allowance
        self._bytes = io.BytesIO()
        self.size_bytes = 0

    def write(self, data: bytes) -> int:
        self.size_bytes += len(data)
        return self._bytes.write(data)

    def finish(self) -> Finished:
        if self._allowance.take(self.size_bytes):
            return Finished(inline=self._bytes.getvalue())
        self._area.uploaded[self._name] = self._bytes.getvalue()
        return Finished(ref={"upload": "1", "parts": []})

    def abandon(self) -> None:
        """Do nothing: nobody looks for it."""


def stager_of(**settings: Any) -> ParquetStager:
    area = InMemory()
    own = WriteSettings(sink=SINK, owner="1a2b3c4d", accounts=ACCOUNTS, **settings)
    return ParquetStager(settings=own, areas=dict.fromkeys(ACCOUNTS, area))


def pass_of(stager: object) -> StagePass:
    share = SinkShare(sink=SINK, stager=stager, route=None)  # type: ignore[arg-type]  # some lose rows on purpose
    return StagePass(
        generation=Generation(3), batch_id=BatchId(7), forms=(RowForm(columns=(), schema="{}"),), shares=(share,), faults={}
    )


def staged_by(stager: ParquetStager, task: int, rows: pa.RecordBatch, *, routes: Sequence[str] | None = None) -> Sequence[Staged]:
    writer = stager.open(attempt(7, generation=3, partition=task), rows.schema)
    writer.write(rows, hashes=row_hashes(rows), accounts=None if routes is None else pa.array(routes, pa.string()))
    return writer.finish()


def random_rows(rng: random.Random, first: int, count: int, *, null_share: float) -> pa.RecordBatch:
    letters = partial(rng.choices, "abcä\U0001f600 '%/=")
    numbers = partial(rng.randrange, -(2**40), 2**40)
    instant = dt.datetime(2026, 1, 1)  # noqa: DTZ001 - Arrow adds the zone
    makers: dict[str, Any] = {
        "day": lambda: rng.randrange(3),
        "text": lambda: "".join(letters(k=rng.randrange(9))),
        "long_text": lambda: "".join(letters(k=rng.randrange(99))),
        "kind": lambda: rng.choice(["one", "other", ""]),
        "amount": lambda: Decimal(numbers()) / 1000,
        "ratio": lambda: rng.choice([0.0, -0.0, float("nan"), float("inf"), rng.random()]),
        "short": lambda: rng.randrange(-(2**15), 2**15),
        "flag": lambda: rng.random() < 0.5,
        "raw": lambda: rng.randbytes(rng.randrange(9)),
        "date": lambda: dt.date(1, 1, 1) + dt.timedelta(days=rng.randrange(3_000_000)),
        "instant": lambda: instant + dt.timedelta(microseconds=numbers()),
        "local": lambda: instant + dt.timedelta(microseconds=numbers()),
        "took": lambda: dt.timedelta(microseconds=numbers()),
        "tags": lambda: [rng.choice([None, "", "tag"]) for _ in range(rng.randrange(4))],
        "counts": lambda: [(f"k{place}", rng.choice([None, numbers()])) for place in range(rng.randrange(3))],
        "nested": lambda: {
            "x y": rng.choice([None, [], [None, {"n": None}, {"n": numbers()}]]),
            "m": rng.choice([None, [], [("k", 1.5)]]),
        },
        "nothing": lambda: None,
    }
    absent = {name for name in makers if rng.random() < null_share / 2}  # in this part, all values are NULL
    values = [
        {
            "id": number,
            **{name: None if name in absent or rng.random() < null_share else make() for name, make in makers.items()},
        }
        for number in range(first, first + count)
    ]
    return pa.RecordBatch.from_pylist(values, schema=SCHEMA)


def bytes_of(stager: ParquetStager, piece: Staged) -> bytes:
    area = stager.areas[piece.account]
    assert isinstance(area, InMemory)
    return area.uploaded[piece.name] if piece.inline is None else piece.inline


def place_of(piece: Staged) -> tuple[str, str]:
    return piece.account, piece.name.rpartition("/")[0]


def contents(stager: ParquetStager, pieces: Sequence[Staged]) -> Mapping[tuple[str, str], Counter[str]]:
    found = defaultdict[tuple[str, str], Counter[str]](Counter)
    for piece in pieces:
        rows = pq.ParquetFile(io.BytesIO(bytes_of(stager, piece))).read().to_pylist()
        assert len(rows) == piece.totals.rows, piece.name
        assert len(bytes_of(stager, piece)) == piece.totals.size_bytes
        found[place_of(piece)].update(map(repr, rows))
    return found


def totals_of(pieces: Sequence[Staged]) -> Mapping[AccountName, Totals]:
    totals: dict[AccountName, Totals] = {}
    for piece in pieces:
        added = replace(piece.totals, files=0, size_bytes=0)
        totals[piece.account] = totals.get(piece.account, Totals()) + added
    return totals


def parts_of(stager: ParquetStager, rng: random.Random, *, tasks: int, route: bool) -> Iterator[Staged]:
    for task in range(tasks):
        count = rng.randrange(1, 60)
        rows = random_rows(rng, task * 100, count, null_share=rng.choice([0.0, 0.2, 0.9]))
        yield from staged_by(stager, task, rows, routes=rng.choices(ACCOUNTS, k=count) if route else None)


@pytest.mark.parametrize(
    "encoding", [Encodings(), Encodings(columns={"id": "delta_binary_packed", "tags.list.element": "plain"})]
)
@pytest.mark.parametrize("partition_by", [(), ("day",), ("flag", "day")], ids=["whole", "by day", "by flag and day"])
def test_random_parts_keep_every_row_in_its_place(partition_by: tuple[str, ...], encoding: Encodings) -> None:
    rng = seeded()
    limit_bytes = rng.choice([9_000, 30_000, 1 << 20])  # some parts of a task may be uploaded
    settings = {"null_for_lost_texts": True, "encoding": encoding, "inline_limit_bytes": limit_bytes}
    stager = stager_of(partition_by=partition_by, **settings)
    pieces = list(parts_of(stager, rng, tasks=rng.randrange(2, 9), route=rng.random() < 0.5))
    fewer = combined(pieces, pass_of(stager))

    assert contents(stager, fewer) == contents(stager, pieces)
    assert totals_of(fewer) == totals_of(pieces)
    inline = Counter(place_of(piece) for piece in fewer if piece.inline is not None)
    assert set(inline) == {place_of(piece) for piece in pieces if piece.inline is not None}
    assert set(inline.values()) <= {1}
    assert {piece.name for piece in pieces if piece.inline is None} <= {piece.name for piece in fewer}
    assert all(piece.totals.files == 1 for piece in fewer)


def test_the_digest_is_that_of_the_rows_that_the_file_holds() -> None:
    rng = seeded()
    stager = stager_of()
    (piece,) = combined(list(parts_of(stager, rng, tasks=5, route=False)), pass_of(stager))
    rows = pq.ParquetFile(io.BytesIO(bytes_of(stager, piece))).read()
    took = SCHEMA.get_field_index("took")  # a file stores whole numbers for it
    types = SCHEMA.set(took, pa.field("took", pa.int64())).set(SCHEMA.get_field_index("kind"), pa.field("kind", pa.string()))
    restored = rows.cast(types).set_column(took, "took", rows.column("took").cast(pa.duration("us")))
    assert digest(row_hashes(restored)) == piece.totals.digest


def test_the_file_is_as_a_task_writes_it() -> None:
    """Schema, metadata, ids of columns, compression, statistics for a table's log, and the rows in the order of the tasks."""
    notes, ids = FileNotes(columns="abc"), {"id": 4, "day": 9, "text": 7}
    stager = stager_of(compression="snappy", footer_notes=notes, field_ids=ids, partition_by=("day",))
    rows = [random_rows(random.Random(task), task * 10, 10, null_share=0.0).select(["id", "day", "text"]) for task in range(3)]
    same_day = [batch.set_column(1, SCHEMA.field("day"), pa.array([5] * 10, pa.int32())) for batch in rows]
    pieces = [piece for task, batch in enumerate(same_day) for piece in staged_by(stager, task, batch)]
    (piece,) = combined(pieces, pass_of(stager))

    whole, part = (pq.ParquetFile(io.BytesIO(bytes_of(stager, each))) for each in (piece, pieces[0]))
    assert whole.schema.equals(part.schema)
    assert [field.metadata for field in whole.schema_arrow] == [field.metadata for field in part.schema_arrow]
    assert whole.metadata.metadata == part.metadata.metadata
    assert whole.metadata.row_group(0).column(0).compression == "SNAPPY"
    assert whole.metadata.num_row_groups == 1
    assert whole.read()["id"].to_pylist() == list(range(30))
    assert '"numRecords":30' in str(piece.ref[STATISTICS])
    assert {**pieces[0].ref, STATISTICS: ""} == {**piece.ref, STATISTICS: ""}


def test_the_name_is_of_an_attempt_of_its_own() -> None:
    stager = stager_of()
    pieces = [*parts_of(stager, random.Random(1), tasks=3, route=False)]
    names = set[str]()
    for _ in range(2):  # a replay that stages again must not meet the files of the first try
        (piece,) = combined(pieces, pass_of(stager))
        found = Attempt.find(piece.name)
        assert found is not None
        assert (found.token, found.generation, found.batch_id) == (piece.attempt, 3, 7)
        assert piece.attempt not in {each.attempt for each in pieces}
        assert piece.name.startswith("part-")
        assert piece.name.endswith("-00000-1a2b3c4d.zstd.parquet")
        names.add(piece.name)
    assert len(names) == 2


@pytest.mark.parametrize(("target_bytes", "rows_of_files"), [(1 << 20, [[4, 4, 2]]), (1, [[4], [4], [2]])])
def test_many_rows_are_not_in_memory_at_once_and_files_end_at_their_size(
    target_bytes: int, rows_of_files: list[list[int]]
) -> None:
    quarter = CHUNK_ROWS // 4
    stager = stager_of(row_group_rows=CHUNK_ROWS, target_file_size_bytes=target_bytes, inline_limit_bytes=1 << 20)
    many = [pa.record_batch({"id": pa.array(range(quarter), pa.int64())}) for _ in range(10)]
    pieces = [piece for task, rows in enumerate(many) for piece in staged_by(stager, task, rows)]
    assert len(pieces) == 10
    fewer = combined(pieces, pass_of(stager))
    files = [pq.ParquetFile(io.BytesIO(bytes_of(stager, piece))).metadata for piece in fewer]
    found = [[each.row_group(index).num_rows // quarter for index in range(each.num_row_groups)] for each in files]
    assert found == rows_of_files
    assert len({piece.name for piece in fewer}) == len(fewer)
    assert contents(stager, fewer) == contents(stager, pieces)


def test_one_part_of_a_place_and_uploads_stay_as_they_are() -> None:
    stager = stager_of()
    (alone,) = staged_by(stager, 0, random_rows(random.Random(1), 0, 5, null_share=0.0))
    uploaded = [replace(alone, name=f"part-{number}", inline=None, ref={"upload": "1", "parts": []}) for number in range(3)]
    pieces = (uploaded[0], alone, *uploaded[1:])
    assert combined(pieces, pass_of(stager)) == pieces
    assert combined((), pass_of(stager)) == ()


class _Losing(ParquetStager):
    def combine(self, pieces: Sequence[Staged], attempt: Attempt) -> Sequence[Staged]:
        return super().combine(pieces[1:], attempt)


def test_what_would_lose_rows_is_not_decided() -> None:
    stager = stager_of()
    pieces = [*parts_of(stager, random.Random(1), tasks=3, route=False)]
    losing = _Losing(settings=stager.settings, areas=stager.areas)
    with pytest.raises(StageFailed, match=r"Tasks staged \d+ rows with digest [0-9a-f]{16} for account 'a', and the files"):
        combined(pieces, pass_of(losing))
