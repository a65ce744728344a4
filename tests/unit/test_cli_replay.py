"""What `penstock quarantine replay` says."""

from pathlib import Path

import pytest
from rich.console import Console
from tests.crash.commandline import penstock

from penstock.cli.app import main
from penstock.cli.replay import _text
from penstock.core.model import Generation, PipelineName, SinkName, SourceName, Totals
from penstock.run.pipeline import Pipeline
from penstock.run.replay import Replay

PLANNED = Replay(
    pipeline=PipelineName("flights"),
    records=1_203,
    waiting=2_000,
    sources={SourceName("flights"): 1_200},
    sinks={SinkName("lake"): 3},
    warnings=("Sink warehouse: a replayed row replaces a newer one of its key. With `sequence_by` it would not.",),
)
DONE = Replay(
    pipeline=PipelineName("flights"),
    records=3,
    waiting=1,
    rows_out=2,
    totals={SinkName("lake"): Totals(rows=2)},
    dropped={SourceName("flights"): {"late": 1}},
    refused=1,
    generation=Generation(4),
    recovered=True,
    done=True,
)


def said(found: Replay) -> str:
    console = Console(width=200, color_system=None)
    with console.capture() as captured:
        console.print(_text(found))
    return captured.get()


def test_a_plan_says_what_would_be_done_and_what_to_mind() -> None:
    text = said(PLANNED)
    assert "1,203 records of 2,000 in the quarantine would be replayed: 1,200 of source flights, 3 for sink lake alone." in text
    assert "Sink warehouse: a replayed row replaces a newer one" in text
    assert "Nothing was changed. Do it with --yes." in text


def test_what_was_done_is_counted() -> None:
    text = said(DONE)
    for line in (
        "What an earlier call decided was published now.",
        "Replayed 3 records of the quarantine: 2 rows.",
        "lake: 2 rows",
        "Rules dropped 1 row.",
        "Put aside again: 1;",
        "1 record waits in the quarantine.",
    ):
        assert line in text


@pytest.mark.parametrize("outstanding", [False, True])
def test_nothing_to_do_is_said(*, outstanding: bool) -> None:
    text = said(Replay(pipeline=PipelineName("flights"), records=0, waiting=5, outstanding=outstanding))
    assert "No record is to be replayed; 5 records wait in the quarantine. `penstock quarantine list` shows" in text
    assert ("--yes publishes it" in text) is outstanding


def test_yes_and_dry_run_exclude_each_other() -> None:
    ended = penstock("quarantine", "replay", "flights.yaml", "--yes", "--dry-run")
    assert (ended.code, "--yes and --dry-run exclude each other." in ended.err) == (2, True)


def test_an_unknown_id_is_refused_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Pipeline, "session", lambda _: pytest.fail("Spark would start"))
    monkeypatch.chdir(tmp_path)
    sinks = "sinks: {lake: {type: parquet, accounts: {a: ./a}}}\n"
    Path("f.yaml").write_text(f"pipeline: p\nhome: ./s\nquarantine: ./q\nsources: {{n: {{format: rate}}}}\n{sinks}")
    with pytest.raises(SystemExit) as ended:
        main(["quarantine", "replay", "f.yaml", "--rows", "abc,def"])
    err = capsys.readouterr().err
    assert ended.value.code == 2
    assert "The quarantine holds no record with the id 'abc'." in err
    assert "`penstock quarantine list f.yaml` shows the ids." in err
