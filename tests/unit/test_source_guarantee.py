"""The table of what each source guarantees."""

import pytest
from rich.console import Console

from penstock.cli.check import _report
from penstock.core.guarantee import Claim, losing_rows, too_weak
from penstock.core.model import Guarantee
from penstock.errors import Usage
from penstock.run.check import CheckReport
from penstock.source.guarantee import needs_schema, source_claims, unknown_format
from penstock.spec.source import Source

FILES = {"path": "/in", "schema": "n INT"}
KINESIS = {"streamName": "orders"}
KAFKA = {"subscribe": "t", "kafka.bootstrap.servers": "host:9092"}
MISSING = "spark.sql.files.ignoreMissingFiles"


def claim(confs: dict[str, str] | None = None, **settings: object) -> Claim:
    (found,) = source_claims({"s": Source(**settings)}, confs or {})
    return found


@pytest.mark.parametrize("name", ["csv", "json", "parquet", "orc", "xml", "avro", "text", "binaryFile"])
def test_files_are_replayable(name: str) -> None:
    found = claim(format=name, **FILES)

    assert found.guarantee is Guarantee.EXACTLY_ONCE
    assert found.subject == f"source s ({name})"
    assert any("removed or changed after Spark listed it" in text for text in found.breaks)
    assert found.warnings == ()


@pytest.mark.parametrize(
    ("options", "confs"),
    [
        ({}, {MISSING: "true"}),
        ({}, {"spark.sql.files.ignoreCorruptFiles": "TRUE"}),
        ({"ignoreMissingFiles": True}, {}),
        ({"IGNORECORRUPTFILES": "true"}, {MISSING: "false"}),
    ],
)
def test_files_that_are_passed_over_unseen(options: dict[str, object], confs: dict[str, str]) -> None:
    found = claim(confs, format="csv", options=options, **FILES)

    assert found.guarantee is Guarantee.AT_LEAST_ONCE
    assert found.remedy


def test_an_option_wins_over_the_session() -> None:
    assert (
        claim({MISSING: "true"}, format="csv", options={"ignoreMissingFiles": False}, **FILES).guarantee is Guarantee.EXACTLY_ONCE
    )


@pytest.mark.parametrize(
    ("options", "warning"),
    [
        ({"mode": "dropMalformed"}, "drops rows that it cannot parse"),
        ({"fileNameOnly": True}, "counts as seen"),
        ({"cleanSource": "archive"}, "moved away once its batch is committed"),
        ({"cleanSource": "delete"}, "deleted once its batch is committed"),
    ],
)
def test_options_of_files_that_hurt(options: dict[str, object], warning: str) -> None:
    found = claim(format="csv", options=options, **FILES)

    assert found.guarantee is Guarantee.EXACTLY_ONCE
    assert warning in found.warnings[0]


@pytest.mark.parametrize(
    ("settings", "guarantee"),
    [
        ({"format": "rate"}, Guarantee.EXACTLY_ONCE),
        ({"format": "rate-micro-batch"}, Guarantee.EXACTLY_ONCE),
        ({"format": "kafka", "options": KAFKA}, Guarantee.EXACTLY_ONCE),
        ({"format": "kafka", "options": {**KAFKA, "failOnDataLoss": False}}, Guarantee.AT_LEAST_ONCE),
        ({"format": "delta", "path": "/table"}, Guarantee.EXACTLY_ONCE),
        ({"format": "kinesis", "options": KINESIS}, Guarantee.EXACTLY_ONCE),
        ({"format": "kinesis", "options": {**KINESIS, "failOnDataLoss": False}}, Guarantee.AT_LEAST_ONCE),
        ({"format": "aws-kinesis"}, Guarantee.EXACTLY_ONCE),
        ({"format": "socket", "options": {"host": "h", "port": 1}}, Guarantee.AT_LEAST_ONCE),
        ({"format": "Socket"}, Guarantee.AT_LEAST_ONCE),
        ({"table": "db.events"}, Guarantee.EXACTLY_ONCE),
        ({"format": "my.own.Format"}, Guarantee.EXACTLY_ONCE),
    ],
)
def test_other_sources(settings: dict[str, object], guarantee: Guarantee) -> None:
    found = claim(**settings)

    assert found.guarantee is guarantee
    assert bool(found.remedy) is (guarantee is Guarantee.AT_LEAST_ONCE)


def test_what_is_only_assumed_is_said() -> None:
    assert claim(format="my.own.Format").why.startswith("Assumed: ")
    assert claim(table="db.events").subject == "source s (table db.events)"


def test_kafka_says_which_rows_it_reads() -> None:
    committed, uncommitted = ({**KAFKA, "kafka.isolation.level": f"read_{kind}"} for kind in ("committed", "uncommitted"))

    assert "aborted transactions" in claim(format="kafka", options=uncommitted).warnings[0]
    assert "only those of ended transactions" in claim(format="kafka", options=KAFKA).why
    assert claim(format="kafka", options=committed) == claim(format="kafka", options=KAFKA)
    assert claim(format="kafka", options=committed).warnings == ()


def test_kafka_says_that_it_passes_over_gaps() -> None:
    assert "noted in the ledger" in claim(format="kafka", options=KAFKA, on_gap="accept").warnings[0]


def test_what_is_too_weak() -> None:
    weak, strong = claim(format="socket"), claim(format="rate")

    assert too_weak([weak, strong], Guarantee.EXACTLY_ONCE) == (weak,)
    assert too_weak([weak, strong], Guarantee.AT_LEAST_ONCE) == ()


def test_formats() -> None:
    assert needs_schema("CSV")
    assert not needs_schema("binaryFile")
    assert not needs_schema("kafka")
    error = unknown_format("s", "parqet")
    assert isinstance(error, Usage)
    assert error.remedy.startswith("Did you mean parquet? ")
    assert unknown_format("s", "zzzzzz").remedy.startswith("Known are ")


@pytest.mark.parametrize(
    "settings",
    [
        {"format": "kafka", "options": {**KAFKA, "failOnDataLoss": False}},
        {"format": "kinesis", "options": {**KINESIS, "failOnDataLoss": False}},
        {"format": "penstock", "path": "/f.yaml", "options": {"failOnDataLoss": False}},
        {"format": "csv", **FILES, "options": {"ignoreCorruptFiles": True}},
    ],
)
def test_settings_that_lose_rows_are_called_that(settings: dict[str, object]) -> None:
    found = claim({}, **settings)
    assert found.may_lose_rows
    assert found.allows == "may lose rows"
    assert "lost, and nothing says which." in found.why


def printed(report: CheckReport) -> list[str]:
    console = Console(width=160)
    with console.capture() as captured:
        console.print(_report(report), markup=False)
    return captured.get().splitlines()


def test_a_part_that_may_lose_rows_is_not_called_at_least_once() -> None:
    losing = losing_rows("source s (kafka)", "failOnDataLoss=false makes Spark skip records.", "Leave it out.")
    for demanded, second in (
        (Guarantee.EXACTLY_ONCE, "It demands exactly_once and gives at_least_once: a start would be refused."),
        (Guarantee.AT_LEAST_ONCE, "It demands at_least_once and gives at_least_once."),
    ):
        report = CheckReport(pipeline="p", demanded=demanded, given=Guarantee.AT_LEAST_ONCE, claims=(losing,), findings=())
        shown = printed(report)
        assert shown[1:3] == [second, "Rows can be lost unseen: source s (kafka)."]
        assert any(line.startswith("source s (kafka)  may lose rows") for line in shown)
        refused = "1  source s (kafka) may lose rows. failOnDataLoss=false makes Spark skip records."
        assert (refused in shown) is (demanded is Guarantee.EXACTLY_ONCE)
