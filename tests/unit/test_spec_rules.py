"""The rules of sources in a pipeline file."""

from pathlib import Path
from typing import Any

import pytest
from tests.unit.test_spec_kafka import NEEDED

import penstock
from penstock.core.model import SourceName
from penstock.errors import Usage
from penstock.source.guarantee import source_claims
from penstock.spec.rule import Rule, violated_sql
from penstock.stage.quarantine import EXPECT, require_read_once

DECODE = {"registry": {"url": "http://registry"}, "value": "avro", "undecodable": "quarantine"}
CSV: dict[str, Any] = {"format": "csv", "path": "/in", "schema": "id INT, delay INT"}


def test_a_predicate_alone_fails_the_batch() -> None:
    rules = penstock.Source(**CSV, expect={"numbered": "id > 0", "late": {"sql": "delay < 9", "on_violation": "drop"}}).expect
    assert {name: rule.on_violation for name, rule in rules.items()} == {"numbered": "fail", "late": "drop"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"r": 5}, "expect.r should be a Spark SQL predicate, found the number 5"),
        ({"r": {"sql": "id > 0", "on_violation": "ignore"}}, "on_violation should be fail, drop or quarantine"),
        ({"r": {"on_violation": "drop"}}, "expect.r.sql is missing"),
        ({"r": {"sql": "id > 0", "else": "drop"}}, "else"),
        ({"it's": "id > 0"}, "letters, digits"),
    ],
)
def test_what_is_no_rule_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(Usage) as raised:
        penstock.Source(**CSV, expect=given)
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ({"format": "rate"}, "expect does not go with format: rate"),
        ({"table": "t"}, "expect does not go with table"),
        ({"format": "journal", "path": "/journal"}, "expect does not go with format: journal"),
    ],
)
def test_a_source_that_is_not_read_again_takes_no_rules(source: dict[str, Any], said: str) -> None:
    with pytest.raises(Usage) as raised:
        penstock.Source(**source, expect={"r": "value > 0"})
    assert said in str(raised.value)


def test_a_quarantine_is_needed_where_a_rule_puts_rows_aside(tmp_path: Path) -> None:
    def settings(**more: Any) -> penstock.PipelineSettings:
        source = penstock.Source(**CSV, expect={"r": {"sql": "id > 0", "on_violation": "quarantine"}})
        sinks = {"m": penstock.Memory()}
        return penstock.PipelineSettings(pipeline="p", home=tmp_path, sources={"s": source}, sinks=sinks, **more)

    with pytest.raises(Usage, match=r"sources\.s\.expect\.r is quarantine, and the pipeline has none"):
        settings()
    assert settings(quarantine=tmp_path / "bad").quarantine is not None


@pytest.mark.parametrize("trigger", [{"continuous": "1s"}, {"real_time": "5m"}])
@pytest.mark.parametrize(
    ("more", "said"),
    [({"expect": {"r": "offset > 0"}}, "expect"), ({"decode": DECODE}, "decode.undecodable")],
    ids=["rules", "decode"],
)
def test_a_trigger_without_batches_takes_nothing_that_reads_them_again(
    tmp_path: Path, trigger: dict[str, Any], more: dict[str, Any], said: str
) -> None:
    """The query would leave such rows out, and nothing would count them or put them aside."""
    source = penstock.Source(format="kafka", options={**NEEDED, "subscribe": "t"}, **more)
    with pytest.raises(Usage, match=rf"sources\.s\.{said} reads each batch once more, and triggers continuous and real_time"):
        penstock.PipelineSettings(
            pipeline="p", home=tmp_path, sources={"s": source}, sinks={"c": penstock.Console()}, trigger=trigger,
            guarantee="at_least_once", quarantine=tmp_path / "bad",
        )  # fmt: skip


def test_the_first_rule_that_is_not_met_counts_and_null_does_not_meet_one() -> None:
    rules = {"a": Rule(sql="x > 0 -- positive"), "b": Rule(sql="y > 0")}
    assert violated_sql(rules) == (
        "CASE WHEN NOT coalesce((x > 0 -- positive\n), false) THEN 'a' WHEN NOT coalesce((y > 0\n), false) THEN 'b' END"
    )


def test_check_says_that_each_batch_is_read_twice() -> None:
    [claim] = source_claims({"s": penstock.Source(**CSV, expect={"r": "id > 0"})}, {})
    assert any(each.startswith("expect: each batch is read twice") for each in claim.warnings)


def test_a_source_with_rules_is_read_once_by_the_query() -> None:
    flights = SourceName("flights")
    require_read_once([flights], [flights, SourceName("others#2")], setting=EXPECT)
    with pytest.raises(penstock.PenstockError, match="has `expect`, but the query reads it more than once"):
        require_read_once([flights], [flights, SourceName("flights#2")], setting=EXPECT)


def test_a_sink_that_puts_rows_aside_needs_a_quarantine_and_rows_that_come_once(tmp_path: Path) -> None:
    lake = penstock.Parquet(accounts={"a": tmp_path / "a"}, route={"column": "c"}, unrouted="quarantine")
    with pytest.raises(Usage, match=r"sinks\.lake\.unrouted is quarantine, and the pipeline has none\. Take fail: only"):
        penstock.Delivery("p", home=tmp_path, sinks={"lake": lake})
    settings = penstock.PipelineSettings(
        pipeline="p", home=tmp_path, sources={"s": CSV}, sinks={"lake": lake}, quarantine=tmp_path / "bad"
    )
    assert settings.sinks["lake"].puts_aside == "unrouted"
    with pytest.raises(Usage, match="with write: replace every batch is the whole result"):
        penstock.SQLite(url="sqlite:////t.db", table="t", write="replace", invalid_rows="quarantine")
