"""What a source `format: penstock` may say in the pipeline file and to plain Spark, what it guarantees, and what may change."""

from pathlib import Path
from typing import Any

import pytest

from penstock.errors import Usage
from penstock.run.preflight.change import Verdict
from penstock.run.preflight.source_rules import source_ruling
from penstock.source.chain.settings import data_source_options, settings_in
from penstock.source.guarantee import source_claims
from penstock.spec.source import Source


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "reads a pipeline but has no path"),
        ({"path": "s3://b/flights.yaml"}, "path should be a pipeline file on this machine"),
        (
            {"path": "f.yaml", "options": {"startingBatches": 1}},
            r"is not an option of format: penstock.*Did you mean startingBatch\?",
        ),
        (
            {"path": "f.yaml", "options": {"startingBatch": "first"}},
            "should be earliest, latest or the number of a batch, found 'first'",
        ),
        ({"path": "f.yaml", "options": {"startingBatch": -1}}, "should be earliest, latest or the number of a batch, found '-1'"),
        ({"path": "f.yaml", "options": {"maxBytesPerTrigger": "1MB"}}, "should be a whole number from 1 on, found '1MB'"),
        ({"path": "f.yaml", "options": {"maxBatchesPerTrigger": 0}}, "should be a whole number from 1 on, found '0'"),
        ({"path": "f.yaml", "options": {"failOnDataLoss": "no"}}, "should be true or false, found 'no'"),
        ({"path": "f.yaml", "options": {"accounts": "a,,b"}}, "should be names of accounts with commas in between, found 'a,,b'"),
        ({"path": "f.yaml", "options": {"sink": " "}}, "should be the name of a sink, found ' '"),
        ({"path": "f.yaml", "reader": "python"}, "reader is for format: kafka only"),
        ({"path": "f.yaml", "expect": {"some": "a > 0"}}, "expect does not go with format: penstock"),
    ],
)
def test_a_wrong_source_is_told(given: dict[str, Any], message: str) -> None:
    with pytest.raises((Usage, ValueError), match=message):
        Source(format="penstock", **given)


def test_a_batch_to_start_with_is_looked_up_in_the_pipeline_that_is_read() -> None:
    with pytest.raises(Usage) as wrong:
        Source(format="penstock", path="/srv/first one.yaml", options={"startingBatch": "newest"})
    assert wrong.value.remedy == "`penstock history '/srv/first one.yaml'` lists the batches."


def test_plain_spark_is_told_as_the_pipeline_file_is() -> None:
    with pytest.raises(Usage, match=r"The option startingbatch of format penstock should be .* found 'x'\."):
        settings_in({"path": "/f.yaml", "startingBatch": "x"})
    with pytest.raises(Usage, match="A stream of format penstock has no path"):
        settings_in({"sink": "lake"})
    with pytest.raises(Usage, match=r"The path s3://b/f.yaml of format penstock is not on this machine\."):
        settings_in({"path": "s3://b/f.yaml"})


def test_options_reach_the_reader_in_any_case() -> None:
    options: dict[str, str | float | bool] = {
        "Sink": "lake",
        "accounts": "a, b",
        "STARTINGBATCH": 7,
        "maxbytespertrigger": 9,
        "failOnDataLoss": False,
    }
    found = settings_in(data_source_options("flights", Source(format="penstock", path="/x/f.yaml", options=options)))
    assert (found.name, found.path, found.sink, found.accounts) == ("flights", Path("/x/f.yaml"), "lake", ("a", "b"))
    assert (found.start, found.max_bytes, found.max_files, found.fails_on_loss) == (7, 9, None, False)
    plain = settings_in({"path": "/x/f.yaml"})
    assert (plain.start, plain.max_files, plain.fails_on_loss) == ("earliest", 1_000, True)


def test_it_is_exactly_once_unless_loss_is_passed_over() -> None:
    strict = Source(format="penstock", path="/f.yaml")
    loose = Source(format="penstock", path="/f.yaml", options={"failOnDataLoss": "false"})
    claims = source_claims({"a": strict, "b": loose}, {})
    assert [claim.guarantee.value for claim in claims] == ["exactly_once", "at_least_once"]


@pytest.mark.parametrize(
    ("key", "verdict"),
    [
        ("options.sink", Verdict.BREAKS),
        ("options.accounts", Verdict.SAFE_WITH_ACTION),
        ("options.startingBatch", Verdict.SAFE),
        ("options.maxBatchesPerTrigger", Verdict.SAFE),
        ("options.failOnDataLoss", Verdict.SAFE),
        ("path", Verdict.SAFE_WITH_ACTION),
    ],
)
def test_what_a_change_means_under_a_checkpoint(key: str, verdict: Verdict) -> None:
    both = {"format": "penstock", "path": "/f.yaml"}
    assert source_ruling(key, {**both, key: "a"}, {**both, key: "b"}, stateful=False).verdict is verdict


def test_another_format_breaks() -> None:
    ruling = source_ruling("format", {"format": "journal"}, {"format": "penstock"}, stateful=False)
    assert ruling.verdict is Verdict.BREAKS
