"""What the verbs print for people and for programs, from values made here."""

import json
from contextlib import closing
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console, RenderableType

from penstock.blob.client import Failure, error_for
from penstock.cli.check import _code as check_code
from penstock.cli.check import _costs as costs_text
from penstock.cli.check import _explanation as explain_text
from penstock.cli.check import _report as check_text
from penstock.cli.contents import _table as quarantine_text
from penstock.cli.operate import _adoption_text, _recovery_text, _swept_text
from penstock.cli.output import name_file, plain, with_file
from penstock.cli.run import JsonLines, Terminal, batch_line, summary_text
from penstock.cli.table import Fitting
from penstock.commit.outcome import Recovered
from penstock.core.guarantee import Claim
from penstock.core.model import (
    Batch,
    BatchId,
    Decision,
    Finding,
    Generation,
    Guarantee,
    Published,
    QueryId,
    RequestEstimate,
    SinkName,
    SourceName,
    Summary,
    Totals,
)
from penstock.core.quarantined_record import QuarantinedRecord
from penstock.observe.progress import BatchProgress, RunSummary, SinkProgress
from penstock.run.assembly import ledger_of, sinks_of
from penstock.run.check import CheckReport, causes_of
from penstock.run.continuation import Adoption
from penstock.run.explain import Costs, Explanation
from penstock.run.pipeline import Pipeline
from penstock.run.preflight.change import PipelineChange, Preflight, safe
from penstock.run.preflight.query_rules import COLUMNS, refused_by_sinks
from penstock.run.status import input_findings
from penstock.support import formatting

LAKE, WAREHOUSE = SinkName("lake"), SinkName("warehouse")


def printed(value: RenderableType) -> list[str]:
    return on_terminal(value, width=200)


def on_terminal(value: RenderableType, *, width: int) -> list[str]:
    out = StringIO()
    Console(file=out, width=width, highlight=False).print(value)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_a_narrow_terminal_gets_fewer_columns_and_is_told_which() -> None:
    ledger = Fitting(("position", "files", "size"), [(1, "12", "18.3 kB")], ("size", "files"))
    assert on_terminal(ledger, width=24) == ["position  files     size", "─" * 24, "       1     12  18.3 kB"]
    assert on_terminal(ledger, width=23)[:3] == ["position  files", "─" * 15, "       1     12"]
    assert " ".join(on_terminal(ledger, width=23)[3:]) == "Not shown, for want of width: size."
    assert " ".join(on_terminal(ledger, width=11)).endswith("       1 Not shown, for want of width: size, files.")


def aside(**more: Any) -> QuarantinedRecord:
    names = ("source", "topic", "partition", "offset", "timestamp_ms", "key", "value", "undecodable", "schema_id", "rule", "row")
    nothing: dict[str, Any] = dict.fromkeys((*names, "file", "sink"))
    return QuarantinedRecord(**{**nothing, "headers": (), "error": "no account", "batch": BatchId(17), **more})


def test_a_narrow_list_of_the_quarantine_has_the_batches_by_which_records_are_chosen() -> None:
    of_file = aside(source="flights", file="file:///srv/incoming/a.csv", rule="delay", row='{"id": 4, "delay": -500}')
    of_sink = aside(
        sink="lake", row='{"id": 3, "origin": "LGA", "delay": 7}', error="A row routes to an account that is not there."
    )
    shown = on_terminal(quarantine_text([of_file, of_sink]), width=80)
    assert [line.split()[:2] for line in shown if line.startswith("id ")] == [["id", "batch"], ["id", "batch"]]
    assert shown.count("") == 1, "between the tables"
    assert max(map(len, shown)) <= 80


def batch(**changes: Any) -> BatchProgress:
    values = {
        "batch_id": 7,
        "rows_out": 1500,
        "already": False,
        "recovered": False,
        "sinks": {LAKE: SinkProgress(rows=1500, files=3, bytes=9000), WAREHOUSE: SinkProgress(rows=1500)},
        "stage_ms": 400,
        "decide_ms": 20,
        "publish_ms": 80,
        "path": "pass",
    }
    return BatchProgress(**(values | changes))


def test_a_batch_in_one_line() -> None:
    assert printed(batch_line(batch())) == [
        "batch    7    1,500 rows   3,000 rows/s  500 ms  lake: 1,500 rows in 3 files  warehouse: 1,500 rows"
    ]


def test_a_warning_stands_below_its_batch(capsys: pytest.CaptureFixture[str]) -> None:
    warned = batch(warnings=("The ledger could not be pruned: it is locked.",))
    line, warning = printed(batch_line(warned))
    assert line == printed(batch_line(batch()))[0]
    assert warning == "            warning: The ledger could not be pruned: it is locked."
    JsonLines().batch(warned)
    assert json.loads(capsys.readouterr().out)["warnings"] == ["The ledger could not be pruned: it is locked."]


def test_a_replayed_batch_says_that_nothing_was_written() -> None:
    shares = {LAKE: SinkProgress(already_committed=1), WAREHOUSE: SinkProgress(already_committed=1)}
    assert printed(batch_line(batch(already=True, sinks=shares))) == [
        "batch    7  already committed  nothing written: lake, warehouse"
    ]


def test_a_recovered_batch_says_where_it_was_missing() -> None:
    shares = {LAKE: SinkProgress(rows=10, files=1), WAREHOUSE: SinkProgress(already_committed=1)}
    assert printed(batch_line(batch(recovered=True, sinks=shares))) == [
        "batch    7  recovered  decided by an earlier run, published now: lake: 10 rows in 1 file  warehouse: already committed"
    ]


def test_the_summary_has_the_keys_of_the_interface(capsys: pytest.CaptureFixture[str]) -> None:
    summary = RunSummary(pipeline="flights", generation=2, sinks={LAKE: SinkProgress(), WAREHOUSE: SinkProgress()})
    lines = JsonLines()
    with lines:
        for progress in (batch(), batch(batch_id=8)):
            summary = summary.plus(progress)
            lines.batch(progress)
        lines.end(summary)
    first, second, last = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert (first["batch_id"], second["batch_id"], first["rows_per_s"], first["already"]) == (7, 8, 3000.0, False)
    assert last == {
        "pipeline": "flights",
        "generation": 2,
        "batches": 2,
        "rows_in": 3000,
        "rows_out": 3000,
        "rows_read": None,
        "sinks": {
            "lake": {"rows": 3000, "files": 6, "bytes": 18000, "already_committed": 0},
            "warehouse": {"rows": 3000, "files": 0, "bytes": 0, "already_committed": 0},
        },
        "last_batch_id": 8,
        "recovered": False,
        "dropped": {},
    }
    assert printed(summary_text(summary, spent_s=2.0))[1] == ("done 2 batches with 3,000 rows in 2.0 s; the last one is batch 8")


def test_a_run_on_a_terminal_ends_with_its_totals(capsys: pytest.CaptureFixture[str]) -> None:
    shown = Terminal("flights")
    with shown:
        assert "starting Spark" in printed(shown._now())[0]
        shown.serving("http://127.0.0.1:9464")
        shown.started()
        assert "running  0 batches" in printed(shown._now())[0]
        shown.batch(batch())
        shown.stopping()
        shown.started()
        assert "stopping after the current batch" in printed(shown._now())[0]
        shown.end(RunSummary(pipeline="flights", sinks={LAKE: SinkProgress()}).plus(batch()))
    out = capsys.readouterr().out
    assert "metrics at http://127.0.0.1:9464/metrics" in out
    assert "batch    7" in out
    assert "stopped after 1 batch with 1,500 rows" in out


def test_check_shows_claims_findings_and_the_conclusion() -> None:
    fine = Claim(
        subject="source a (csv)", guarantee=Guarantee.EXACTLY_ONCE, why="Files do not change.", breaks=("Changed files.",)
    )
    weak = Claim(
        subject="trigger continuous",
        guarantee=Guarantee.AT_LEAST_ONCE,
        why="It has no batches.",
        remedy="Use processing_time.",
        warnings=("It is old.",),
    )
    reached = Finding(subject="sink lake", ok=True, message="3 accounts [a]")
    missing = Finding(subject="ledger", ok=False, message="It cannot be written.")

    def report(
        *claims: Claim, demanded: Guarantee = Guarantee.EXACTLY_ONCE, findings: tuple[Finding, ...] = (reached,)
    ) -> CheckReport:
        given = Guarantee.AT_LEAST_ONCE if weak in claims else Guarantee.EXACTLY_ONCE
        return CheckReport(pipeline="p", demanded=demanded, given=given, claims=claims, findings=findings)

    text = "\n".join(printed(check_text(report(fine, weak, findings=(reached, missing)))))
    for said in (
        "Files do not change.",
        "broken by: Changed files.",
        "warning: It is old.",
        "remedy: Use processing_time.",
        "[a]",
    ):
        assert said in text
    assert text.splitlines()[:5] == [
        "p  NOT ready: 2 things must be mended before a start",
        "It demands exactly_once and gives at_least_once: a start would be refused.",
        "",
        "1  trigger continuous gives at_least_once. It has no batches.",
        "   warning: It is old.",
    ]
    assert text.index("2  ledger: It cannot be written.") < text.index("Files do not change.")
    assert printed(check_text(report(fine)))[:2] == ["p  ready to start", "It demands exactly_once and gives exactly_once."]
    assert check_code(report(fine, weak)) == 3
    hurts = Finding(subject="lifecycle of s3://lake", ok=True, warns=True, message="Rule tidy deletes objects.")
    (line,) = [line for line in printed(check_text(report(fine, findings=(hurts, reached)))) if "lifecycle" in line]
    assert line.split()[3] == "warning"
    assert report(fine, findings=(hurts,)).ok
    assert check_code(report(fine, findings=(missing,))) == 3
    assert check_code(report(fine, findings=(Finding(subject="sink lake", ok=False, message="-"),))) == 1
    assert report(fine, weak, demanded=Guarantee.AT_LEAST_ONCE).ok


def test_one_cause_is_counted_once() -> None:
    denied = "The login at db fails. Correct user and password."
    subjects = ("sink a", "rows for a", "sink b", "places")
    failed = [Finding(subject=subject, ok=False, message=denied) for subject in subjects]
    in_tasks = Finding(subject="sink b, from the executors", ok=False, message=f"on worker-1 (1 of 2): {denied}")
    other = Finding(subject="ledger", ok=False, message="It cannot be written.")
    found = (in_tasks, failed[0], other, *failed[1:], failed[0])
    report = CheckReport(pipeline="p", demanded=Guarantee.EXACTLY_ONCE, given=Guarantee.EXACTLY_ONCE, claims=(), findings=found)
    assert [(cause.subjects, cause.message) for cause in report.causes] == [
        (("sink b, from the executors", *subjects), denied),
        (("ledger",), "It cannot be written."),
    ]
    text = printed(check_text(report))
    assert text[0] == "p  NOT ready: 2 things must be mended before a start"
    told = refused_by_sinks(
        Preflight(changes=(PipelineChange.by(safe(""), COLUMNS, before="a", now="b"),)), {"x": found[0].message}
    )
    assert printed(check_text(replace(report, preflight=told)))[0] == text[0], "one thing that is told twice is one thing"
    assert text[3:6] == [
        f"1  {denied}",
        "   concerns sink b, from the executors; sink a; rows for a; sink b; places",
        "2  ledger: It cannot be written.",
    ]
    assert plain(report)["causes"][0]["message"] == denied
    assert CheckReport(pipeline="p", demanded=Guarantee.EXACTLY_ONCE, given=Guarantee.EXACTLY_ONCE, claims=(), findings=()).ok


def test_one_password_of_a_server_and_one_key_of_an_account_are_each_one_cause() -> None:
    """All databases of a server have the same users, and all containers of an account of Azure the same keys."""
    by_login = [
        Finding(subject=f"sink {name}", ok=False, message=f"The login at db:5432/{name} fails: for user 'shop'. Correct it.")
        for name in ("one", "two")
    ]
    places = ("az://a@acc/EWR/check/17", "az://a@acc/JFK/marks/", "az://b@acc/spool/check/9")
    denied, away = Failure.CREDENTIALS, Failure.UNCHANGED
    by_store = [
        Finding(subject=place, ok=False, message=str(error_for(kind, "no", act="create", where=place, changes=True)))
        for kind in (denied, away)
        for place in (*places, "s3://lake/x", "s3://other/x")
    ]
    found = causes_of([*by_login, *by_store])
    assert [cause.subjects for cause in found] == [
        ("sink one", "sink two"),
        places,
        ("s3://lake/x",),
        ("s3://other/x",),
        places,
        ("s3://lake/x",),
        ("s3://other/x",),
    ]


def test_containers_that_are_missing_are_a_cause_each() -> None:
    missing = [
        Finding(subject=where, ok=False, message=str(error_for(Failure.MISSING, "no", act="list", where=where, changes=False)))
        for where in ("az://a@acc/EWR", "az://b@acc/EWR")
    ]
    assert len(causes_of(missing)) == 2


def test_three_sinks_of_one_unusable_database_have_one_cause(tmp_path: Path) -> None:
    (tmp_path / "shop.db").write_bytes(b"no database at all" * 100)
    sinks = "".join(f"  {name}: {{type: sqlite, url: 'sqlite:///shop.db', table: {name}}}\n" for name in ("a", "b", "c"))
    (tmp_path / "p.yaml").write_text(f"pipeline: p\nhome: ./state\nsources: {{s: {{format: rate}}}}\nsinks:\n{sinks}")
    plan = Pipeline.from_file(tmp_path / "p.yaml").plan
    (cause,) = causes_of(finding for sink in sinks_of(plan) for finding in sink.check())
    assert cause.subjects == ("sink a", "sink b", "sink c")
    assert "shop.db" in cause.message


def test_brokers_that_are_away_are_one_cause_for_sources_and_sinks(tmp_path: Path) -> None:
    source = "{format: kafka, options: {subscribe: t, kafka.bootstrap.servers: '127.0.0.1:1'}}"
    sink = "{type: kafka, bootstrap: '127.0.0.1:1', topic: t}"
    (tmp_path / "p.yaml").write_text(
        f"pipeline: p\nhome: ./state\nsources: {{one: {source}, two: {source}}}\ntransform: {{sql: SELECT value FROM one}}\n"
        f"sinks: {{out: {sink}}}\n"
    )
    plan = Pipeline.from_file(tmp_path / "p.yaml").plan
    with closing(ledger_of(plan)) as ledger:
        of_sources = list(input_findings(plan.settings, ledger, now_ms=lambda: 0))
    (cause,) = causes_of([*of_sources, *(finding for each in sinks_of(plan) for finding in each.check())])
    assert cause.message.startswith("Kafka at 127.0.0.1:1 does not answer: Connection refused.")
    assert cause.subjects == ("kafka", "sink out")


def test_explain() -> None:
    found = Explanation(
        pipeline="p",
        scans={SourceName("a"): 1, SourceName("b"): 2},
        stateful=(),
        columns=("x int",),
        path="small",
        sinks={LAKE: {"stage": "Parquet files", "publish": "links"}},
        ledger="one append",
        batches_per_day=8640,
    )
    text = "\n".join(printed(explain_text(found)))
    for said in ("a once, b 2 times", "none", "x int", "Parquet files", "links", "at most 8,640", "before Spark goes on"):
        assert said in text
    assert "requests" not in text


LOOKS = "and 17,280 to see whether a newer run took over"
ABOUT = "about 10.1 a batch with one small file for each account, 14.1 if they are uploaded (estimated)"
ESTIMATED = RequestEstimate(small=10.125, uploaded=14.125, look=3)


@pytest.mark.parametrize(
    ("requests_per_batch", "measured_batches", "interval_ms", "told"),
    [
        (14.0, 20, 10_000, f"14 a batch, measured over the last 20 batches; at a trigger of 10 s at most 120,960 a day, {LOOKS}"),
        (12.54, 1, None, "12.5 a batch, measured over the last batch"),
        (10.125, 0, 500, f"{ABOUT}; at a trigger of 0.5 s at most 1,749,600 a day, {LOOKS}"),
    ],
)
def test_costs(requests_per_batch: float, measured_batches: int, interval_ms: int | None, told: str) -> None:
    costs = Costs(
        requests_per_batch=requests_per_batch,
        measured_batches=measured_batches,
        estimated=ESTIMATED,
        interval_ms=interval_ms,
    )
    assert costs_text(costs) == told
    given = {"demanded": Guarantee.EXACTLY_ONCE, "given": Guarantee.EXACTLY_ONCE, "claims": (), "findings": ()}
    assert "requests  " + told[:40] in "\n".join(printed(check_text(CheckReport(pipeline="p", costs=costs, **given))))
    known = {"scans": {}, "stateful": (), "columns": (), "path": "", "sinks": {}, "ledger": "", "batches_per_day": None}
    assert "requests         " + told[:40] in "\n".join(printed(explain_text(Explanation(pipeline="p", costs=costs, **known))))
    assert plain(costs)["requests_per_day"] == costs.requests_per_day


def test_recover_adopt_and_sweep() -> None:
    batch = Batch(query_id=QueryId("q"), batch_id=BatchId(12), offsets=())
    done = Recovered(
        generation=Generation(4),
        summary=Summary(),
        decision=Decision(batch=batch, rows_in=5, schema="", staged=(), stage_ms=0),
        sinks={
            LAKE: Published(totals=Totals(rows=5), already=False),
            WAREHOUSE: Published(totals=Totals(rows=5), already=True),
        },
        swept=("a", "b"),
        warnings=("The ledger grows.",),
    )
    text = printed(_recovery_text(done))
    assert text[0] == "warning: The ledger grows."
    assert text[1] == "Batch 12 is published everywhere (generation 4)."
    assert [line.split()[0] for line in text if "published now" in line or "was there already" in line] == ["lake", "warehouse"]
    assert text[-1] == "Swept 2 pieces of dead staging."
    nothing = Recovered(generation=Generation(1), summary=Summary(), decision=None, sinks={}, swept=(), warnings=())
    assert printed(_recovery_text(nothing)) == ["Nothing was decided yet, so there is nothing to recover."]

    adoption = Adoption(needed=True, done=False, query_id=QueryId("q"), next_batch_id=BatchId(3), consequences=("LOSS.",))
    assert printed(_adoption_text(adoption)) == ["LOSS.", "Nothing was changed. Do it with --yes --reason TEXT."]

    assert _swept_text((), done=False) == "There is nothing to sweep."
    assert _swept_text(("x",), done=False).endswith("Nothing was changed. Do it with --yes.")
    assert _swept_text(("x",), done=True) == "Collected:\n  x"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Guarantee.EXACTLY_ONCE, "exactly_once"),
        (Path("/x"), "/x"),
        ({"a": (1, None)}, {"a": [1, None]}),
        (frozenset({"b", "a"}), ["a", "b"]),
        (Totals(rows=1, digest=255), {"rows": 1, "files": 0, "size_bytes": 0, "digest": "00000000000000ff"}),
    ],
)
def test_values_as_json(value: object, expected: object) -> None:
    assert plain(value) == expected


def test_what_has_no_json_form_is_refused() -> None:
    with pytest.raises(TypeError, match="object has no JSON form"):
        plain(object())


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (formatting.size(999), "999 B"),
        (formatting.size(12_345), "12.3 kB"),
        (formatting.size(5 * 10**15), "5000.0 TB"),
        (formatting.duration(None), ""),
        (formatting.duration(12.4), "12 ms"),
        (formatting.duration(61_000), "1 min 1 s"),
        (formatting.duration(7_260_000), "2 h 1 min"),
        (formatting.ago(0, now_ms=1000), "1 second ago"),
        (formatting.ago(0, now_ms=7_200_000), "2 hours ago"),
        (formatting.ago(5_000, now_ms=0), "0 seconds ago"),
        (formatting.counted(1, "batch", "batches"), "1 batch"),
        (formatting.counted(2000, "batch", "batches"), "2,000 batches"),
    ],
)
def test_numbers_for_people(said: str, expected: str) -> None:
    assert said == expected


@pytest.mark.parametrize(
    ("file", "text", "shown"),
    [
        ("flights.yaml", "run `penstock recover`, then start", "run `penstock recover flights.yaml`, then start"),
        ("flights.yaml", "`penstock sweep --yes`", "`penstock sweep flights.yaml --yes`"),
        ("flights.yaml", "`penstock doctor FILE --end x`", "`penstock doctor flights.yaml --end x`"),
        ("my flights.yaml", "(`penstock checkpoint inspect`)", "(`penstock checkpoint inspect 'my flights.yaml'`)"),
        ("flights.yaml", "`penstock savepoint list`", "`penstock savepoint list flights.yaml`"),
        ("flights.yaml", "See `penstock history --help`.", "See `penstock history --help`."),
        ("flights.yaml", "`penstock init`", "`penstock init`"),
        ("flights.yaml", "`penstock verify other.yaml`", "`penstock verify other.yaml`"),
        (None, "`penstock recover`", "`penstock recover`"),
    ],
)
def test_a_command_in_a_message_has_the_file_that_was_given(file: str | None, text: str, shown: str) -> None:
    name_file(file)
    try:
        assert with_file(text) == shown
    finally:
        name_file(None)
