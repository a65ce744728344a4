"""Records that are put aside: what is kept of them, what the other sinks get, and when one may not be put aside after all."""

from typing import Any

import pyarrow as pa
import pytest
from tests.live.test_registry_client import decode_pass, decoded, failed, place, records
from tests.servers.fixtures import server, unique
from tests.unit.registry_values import ORDER, avro

from penstock.core.bad_record import NAME, SCHEMA, SCHEMA_CHECKED, UNKNOWN
from penstock.core.model import NEWEST_ROW_DIGEST, BatchId, Generation, OffsetRange, PipelineName, SourceName
from penstock.errors import Refused, Retryable, StageFailed
from penstock.registry.decoding import QuarantinePass, unpacked
from penstock.registry.wire import RegistryPlace, framed
from penstock.sink.parquet import directory_account
from penstock.sink.quarantine import QuarantineSink
from penstock.source.kafka.records_again import KafkaRecords
from penstock.spark.schema import arrow_schema
from penstock.spec.location import Quarantine
from penstock.stage.batch import stage_aside
from penstock.stage.quarantine import BadRecords, QuarantineMember, require_read_once

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
GOOD = {"id": 1, "customer": "ann", "amount": 0.5}


def with_headers(batch: pa.RecordBatch) -> pa.RecordBatch:
    given = [[("trace", b"\1")], None, [("none", None)], []] * batch.num_rows
    kept = pa.array(
        [None if one is None else [{"key": k, "value": v} for k, v in one] for one in given[: batch.num_rows]], HEADERS
    )
    return batch.append_column("headers", kept)


@pytest.fixture
def orders() -> tuple[QuarantinePass, bytes]:
    subject = unique("orders-value")
    good = avro(ORDER, GOOD, server("registry").register(subject, ORDER))
    return QuarantinePass(decode=decode_pass(("value", subject)), at_most=3), good


def member(given: QuarantinePass, kind: type[QuarantineMember] = QuarantineMember, **given_otherwise: Any) -> QuarantineMember:
    """The quarantine of `orders`; what tasks would find of a source that is None is not read."""
    fitting = {"sink": None, "settings": Quarantine(url="./bad"), "sources": {}, "passes": {SourceName("orders"): given.decode}}
    return kind(**{**fitting, **given_otherwise})


def found(given: QuarantinePass, *batches: pa.RecordBatch) -> pa.Table:
    packed = [value for batch in given(iter(batches)) for value in batch["records"].to_pylist()]
    return unpacked(packed)


def test_a_bad_record_is_kept_as_it_came_and_no_good_one(orders):
    given, good = orders
    unknown = framed(900_000, b"x")
    table = found(given, with_headers(records(good, b"plain", good, unknown, None, key=b"k")))
    assert table.schema.equals(arrow_schema(SCHEMA_CHECKED))
    rows = table.to_pylist()
    assert [(row["source"], row["topic"], row["partition"], row["offset"]) for row in rows] == [
        ("orders", "orders", 2, 41),
        ("orders", "orders", 2, 43),
    ]
    assert [(row["key"], row["value"], row["headers"]) for row in rows] == [(b"k", b"plain", None), (b"k", unknown, [])]
    assert [(row["undecodable"], row["schema_id"], row[UNKNOWN]) for row in rows] == [
        ("value", None, False),
        ("value", 900_000, True),
    ]
    assert "begins with the byte 0x70" in rows[0]["error"]
    assert found(given, with_headers(records(good))).num_rows == 0


def test_the_other_sinks_get_the_others(orders):
    given, good = orders
    passing = type(given.decode)(source="orders", place=place(), coded=given.decode.coded, passes_over=True)
    table = decoded(passing, records(b"plain", good, b"", None), records(b"plain"))
    assert table["offset"].to_pylist() == [41, 43]
    assert table["value"].to_pylist() == [GOOD, None]


def test_a_task_stops_where_it_is_clear_that_there_are_too_many(orders):
    given, good = orders
    batches = [with_headers(records(b"a", b"b", good)) for _ in range(5)]
    assert 3 < found(given, *batches).num_rows < 10


def test_a_registry_that_does_not_answer_puts_nothing_aside(orders):
    given, good = orders
    away = RegistryPlace(urls=("http://127.0.0.1:1",), name="away")
    passing = type(given.decode)(source="orders", place=away, coded=given.decode.coded, passes_over=True)
    assert type(failed(passing, records(good))) is Retryable


def test_a_schema_that_the_registry_knows_by_now_lets_nothing_be_decided(orders):
    given, _ = orders
    last = server("registry").register(unique("last"), ORDER | {"name": unique("Last")})
    quarantine = member(given)
    rows = found(given, with_headers(records(b"plain", framed(last + 1, b"x"))))
    bad = BadRecords(rows=rows, offsets=2)
    assert bad.for_sink.schema.equals(arrow_schema(SCHEMA))
    quarantine.require_still_bad(bad)
    assert server("registry").register(unique("next"), ORDER | {"name": unique("Next")}) == last + 1
    with pytest.raises(Retryable, match=f"knows the schema with id {last + 1} since the batch was read"):
        quarantine.require_still_bad(bad)


def test_nothing_is_read_again_of_other_sources(orders):
    given, _ = orders
    end = OffsetRange(source=SourceName("orders"), start=None, end='{"orders": {"0": 5}}')
    assert member(given).found(None, [end]) is None
    others = SourceName("others")
    nothing = OffsetRange(source=others, start=None, end=None)
    assert member(given, sources={others: KafkaRecords("s", None)}).found(None, [end, nothing]) is None


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["other"], "the query reads other, not 'orders': records"),
        ([], "the query reads nothing, not 'orders'"),
        (["orders", "other", "orders#2"], "the query reads it more than once: records"),
    ],
)
def test_a_source_that_is_not_read_once_is_refused_before_its_records_are_lost(orders, names, told):
    given, _ = orders
    ours = SourceName("orders")
    quarantine = member(given, sources={ours: None})
    ranges = [OffsetRange(source=SourceName(name), start=None, end='{"orders": {"0": 5}}') for name in names]
    with pytest.raises(Refused, match="Source 'orders' has `undecodable: quarantine`, but " + told):
        quarantine.found(None, ranges)  # type: ignore[arg-type]
    require_read_once(["orders"], [ours, SourceName("other"), SourceName("other#2"), ours])


def test_a_batch_that_was_decided_is_not_measured_by_todays_limits(orders):
    """What tasks would find is given here: Spark's own part is in tests/spark/test_quarantine.py."""
    given, _ = orders
    [packed] = [value for batch in given(iter([with_headers(records(b"a", b"b"))])) for value in batch["records"].to_pylist()]
    asked = []

    class Found(QuarantineMember):
        def _read(self, spark, each, *, at_most):
            asked.append(at_most)
            return [packed]

    ours = SourceName("orders")
    today = member(given, Found, settings=Quarantine(url="./bad", max_rows=1), sources={ours: KafkaRecords("s", None)})
    ranges = [OffsetRange(source=ours, start='{"orders": {"0": 3}}', end='{"orders": {"0": 5}}')]
    with pytest.raises(StageFailed, match="more than 1 records cannot be decoded"):
        today.found(None, ranges)  # type: ignore[arg-type]
    assert today.found(None, ranges, decided=2).rows.num_rows == 2  # type: ignore[arg-type]
    assert asked == [1, 2]


def test_what_is_found_is_staged_for_the_quarantine(orders, tmp_path):
    given, good = orders
    sink = QuarantineSink(pipeline=PipelineName("orders"), account=directory_account(tmp_path / "quarantine"))
    sink.prepare(pipeline=PipelineName("orders"), schema=SCHEMA)
    bad = BadRecords(rows=found(given, with_headers(records(b"plain", good, b"other"))), offsets=3)
    made = {"generation": Generation(1), "batch_id": BatchId(0), "row_digest": NEWEST_ROW_DIGEST}
    aside = stage_aside(bad.for_sink, sink, **made)
    assert [(piece.sink, piece.totals.rows) for piece in aside.pieces] == [(NAME, 2)]
