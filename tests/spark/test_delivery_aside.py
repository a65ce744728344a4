"""What is put aside of a batch is decided with it, and only while nobody can decode it: what tasks would find is given here.

That they find it is in test_quarantine.py.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from penstock.core.model import SourceName
from penstock.registry.decoding import QuarantinePass
from penstock.registry.wire import framed
from penstock.run.assembly import assemble
from penstock.run.open_delivery import OpenDelivery
from penstock.sink.parquet import directory_account
from penstock.sink.quarantine import QuarantineSink
from penstock.spec.location import Quarantine
from penstock.stage.quarantine import BadRecords, QuarantineMember
from tests.live.test_registry_client import decode_pass, records
from tests.live.test_registry_quarantine import found, with_headers
from tests.servers.fixtures import server, unique
from tests.spark import streams
from tests.spark.target import Target
from tests.unit.registry_values import ORDER

pytestmark = pytest.mark.spark

ORDERS = SourceName("orders")


def register() -> int:
    return int(server("registry").register(unique("some"), ORDER | {"name": unique("Some")}))


class Given:
    """A quarantine with two records of every batch, one of them by the schema that the registry gets next.

    `meanwhile` is done after each look.
    """

    def __init__(self) -> None:
        subject = unique("orders-value")
        server("registry").register(subject, ORDER)
        decode = decode_pass(("value", subject))
        self.sources = {ORDERS: None}
        member = QuarantineMember(
            sink=None,  # type: ignore[arg-type]
            settings=Quarantine(url="./unused"),
            sources={},
            passes={ORDERS: decode},
        )
        self.settings = member.settings
        self.require_still_bad, self.put_aside, self.puts_aside = member.require_still_bad, member.put_aside, member.puts_aside
        self._pass, self.unknown = QuarantinePass(decode=decode, at_most=9), register() + 1
        self.values = (b"plain", framed(self.unknown, b"x"))
        self.meanwhile: Callable[[], object] = lambda: None

    def found(self, spark: object, ranges: object, *, decided: int | None = None) -> BadRecords:
        rows = found(self._pass, with_headers(records(*self.values)))
        self.meanwhile()
        return BadRecords(rows=rows, offsets=len(self.values))

    def require_few_refused(self, pieces: object, *, rows: int, others: int = 0) -> None:
        """No sink refuses any."""


class Place:
    """A table of numbers in files, and beside it the quarantine."""

    def __init__(self, root: Path) -> None:
        self.target = Target(root, lake=Target(root).lake)

    def deliver(self, frame: DataFrame, aside: Given) -> None:
        """All that is there now, in a new run."""
        parts = assemble(self.target.delivery(sources=(ORDERS,)).plan)
        aside.sink = QuarantineSink(pipeline=parts.pipeline, account=directory_account(self.target.root / "quarantine"))
        run = OpenDelivery(replace(parts, sinks=(*parts.sinks, aside.sink), quarantine=aside))  # type: ignore[arg-type]
        try:
            run.open(schema=frame.schema.json())
            streams.run(frame, self.target.checkpoint, run.deliver)  # type: ignore[arg-type]
        finally:
            run.release()

    def held(self) -> "Counter[Any]":
        files = list((self.target.root / "quarantine").rglob("*.parquet"))
        return Counter(pyarrow.dataset.dataset(files).to_table()["value"].to_pylist() if files else [])


def numbers(spark: SparkSession, root: Path, *lines: int) -> DataFrame:
    streams.put(root / "in", "0.csv", *lines)
    return spark.readStream.schema("n INT").csv(str(root / "in"))


def test_what_is_put_aside_is_decided_with_its_batch(spark: SparkSession, tmp_path: Path) -> None:
    place, aside = Place(tmp_path), Given()
    place.deliver(numbers(spark, tmp_path, 1, 2), aside)
    assert place.target.accounts() == Counter([(1,), (2,)])
    assert place.held() == Counter(aside.values)


def test_nothing_is_decided_of_a_batch_whose_records_can_be_decoded_since(spark: SparkSession, tmp_path: Path) -> None:
    place, aside = Place(tmp_path), Given()
    aside.meanwhile = register
    with pytest.raises(StreamingQueryException, match=f"knows the schema with id {aside.unknown} since the batch was read"):
        place.deliver(numbers(spark, tmp_path, 1, 2), aside)
    assert (place.target.accounts(), place.held()) == (Counter(), Counter())


def test_no_state_is_kept_of_a_decided_batch_whose_records_can_be_decoded_since(spark: SparkSession, tmp_path: Path) -> None:
    """Its rows are delivered; Spark computes it again for the state alone, since it never noted its end."""
    place, aside = Place(tmp_path), Given()
    frame = numbers(spark, tmp_path, 1, 2).dropDuplicates(["n"])
    place.deliver(frame, aside)
    streams.forget_commit(place.target.checkpoint, 0)
    aside.meanwhile = register
    with pytest.raises(StreamingQueryException, match=f"knows the schema with id {aside.unknown} since the batch was read"):
        place.deliver(frame, aside)
    assert not (place.target.checkpoint / "commits" / "0").exists()
    assert (place.target.accounts(), place.held()) == (Counter([(1,), (2,)]), Counter(aside.values))
