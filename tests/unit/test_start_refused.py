"""What keeps a start from going on, said before it by `doctor`, by `status`, by commands of the checkpoint and by the start."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.unit.test_run_doctor import FILE, WAREHOUSE, doctor, run

from penstock.checkpoint.entries import unfinished_text
from penstock.checkpoint.spark_checkpoint import SparkCheckpoint
from penstock.cli.app import main
from penstock.core.faults import arm
from penstock.errors import CheckpointDamaged
from penstock.run.assembly import ledger_of
from penstock.run.checkpoint_acts import require_whole
from penstock.run.failure import error_from_query
from penstock.run.pipeline import Pipeline
from penstock.stage.staging import from_spark


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("penstock.run.doctor._sleep", lambda _: None)
    Path("flights.yaml").write_text(FILE)
    yield
    arm("")


@pytest.mark.parametrize(
    ("damage", "said_of_it"),
    [
        (lambda root: (root / "commits/1").write_text(""), "commits/1 is empty"),
        (lambda root: (root / "offsets/0").unlink(), "offsets/0 is missing"),
        (lambda root: (root / "offsets/0").write_text("v1\n{"), "offsets/0 line 2 is not JSON"),
        (lambda root: shutil.rmtree(root / "sources"), "sources/0 is missing or empty"),
        (lambda root: (root / "sources/0/0").unlink(), "sources/0/0 is missing, and no compacted entry repeats it"),
        (lambda root: (root / "sources/0/1").unlink(), "sources/0/1 is missing, and the newest planned batch ends with it"),
    ],
)
def test_what_spark_reads_when_it_starts_and_is_not_there_is_told_by_all_three(
    capsys: pytest.CaptureFixture[str], damage: Callable[[Path], object], said_of_it: str
) -> None:
    run(last_fails=False)
    checkpoint = Path("state/checkpoint")
    (checkpoint / "sources/0").mkdir(parents=True)
    for number in range(2):
        (checkpoint / "offsets" / str(number)).write_text(f'v1\n{{}}\n{{"logOffset":{number}}}')
        entry = {"path": f"file:///in/{number}.csv", "timestamp": 1, "batchId": number}
        (checkpoint / "sources/0" / str(number)).write_text(f"v1\n{json.dumps(entry)}")
    chosen = Pipeline.from_file("flights.yaml")
    assert (doctor(capsys, code=0)["refused"], chosen.status().health) == (None, "ok")
    damage(checkpoint)
    refused = doctor(capsys, code=1)["refused"]
    assert said_of_it in refused
    assert "`penstock checkpoint repair FILE` mends what can be mended" in refused
    found = chosen.status()
    assert found.health == "conflict"
    assert said_of_it in found.text
    with pytest.raises(CheckpointDamaged, match=said_of_it):
        chosen.require_startable()


@pytest.mark.parametrize("command", ["verify", "inspect", "explain"])
def test_a_checkpoint_that_is_not_there_is_damage_where_the_ledger_continues_it(
    capsys: pytest.CaptureFixture[str], command: str
) -> None:
    run(last_fails=False)
    shutil.rmtree("state/checkpoint")
    with pytest.raises(SystemExit) as ending:
        main(["checkpoint", command, "flights.yaml"])
    told = " ".join(capsys.readouterr().out.split())
    assert ending.value.code == 5
    assert "Spark will not start on this checkpoint." in told
    assert "with batch 2, but the checkpoint" in told
    assert "`penstock checkpoint rebuild flights.yaml`" in told


@pytest.mark.parametrize("command", ["checkpoint repair", "run --available-now", "run --json"])
def test_a_checkpoint_that_the_ledger_continues_is_lost_and_not_new(capsys: pytest.CaptureFixture[str], command: str) -> None:
    run(last_fails=False)
    shutil.rmtree("state/checkpoint")
    with pytest.raises(SystemExit) as ending:
        main([*command.split(), "flights.yaml"])
    told = capsys.readouterr()
    assert ending.value.code == 3
    assert "with batch 2, but the checkpoint" in told.err
    assert "`penstock checkpoint rebuild flights.yaml`" in told.err
    if "--json" in command:
        assert "`penstock checkpoint rebuild flights.yaml`" in json.loads(told.out)["error"]["remedy"]


def test_an_act_on_the_checkpoint_that_was_interrupted_is_finished_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    run(last_fails=False)
    Path("state/checkpoint/metadata").write_bytes(unfinished_text("penstock-acts/0001-repair"))
    assert doctor(capsys, code=1)["refused"].endswith(
        "Run the same `penstock checkpoint repair` command again with --yes to finish it, or with --undo --yes to undo it."
    )


def test_a_state_that_is_gone_is_missed_by_all_but_the_files(capsys: pytest.CaptureFixture[str]) -> None:
    run(last_fails=False)
    chosen = Pipeline.from_file("flights.yaml")
    with closing(ledger_of(chosen.plan)) as ledger:
        tail = ledger.tail()
    assert tail is not None
    held = {"kind": "stateStoreSave", "keys": "[shop]", "holds": "sum(amount)", "opaque": 0}
    described = {"generation": 1, "ledger_id": tail.summary.ledger_id, "pipeline": "flights", "query": {}, "sinks": {}}
    Path("state/runs").mkdir(exist_ok=True)
    Path("state/runs/1.json").write_text(
        json.dumps({"format": "penstock.run", "version": 1, "sources": {}, "versions": {}, "state": [held], **described})
    )
    Path("state/checkpoint/state/0").mkdir(parents=True)
    assert doctor(capsys, code=0)["refused"] is None
    shutil.rmtree("state/checkpoint/state")
    assert "has lost the state of the query" in doctor(capsys, code=1)["refused"]
    with pytest.raises(CheckpointDamaged, match="has lost the state of the query"):
        chosen.require_startable()
    with pytest.raises(CheckpointDamaged, match="the last run kept stateStoreSave there"):
        require_whole(chosen.plan)
    with pytest.raises(SystemExit) as ending:
        main(["checkpoint", "repair", "flights.yaml"])
    assert ending.value.code == 3
    assert "the last run kept stateStoreSave there" in capsys.readouterr().err


def test_a_sink_that_left_before_its_rows_were_published_is_missed_by_the_doctor(capsys: pytest.CaptureFixture[str]) -> None:
    run(last_fails=False)
    Path("flights.yaml").write_text(FILE.replace("  lake:", "  pond:").replace("./lake", "./pond"))
    assert "Batch 1 holds rows for sink 'lake', which the pipeline file no longer has." in doctor(capsys, code=1)["refused"]


def test_a_spool_that_a_newer_ledger_uses_is_seen_by_the_doctor(capsys: pytest.CaptureFixture[str]) -> None:
    Path("flights.yaml").write_text(FILE + WAREHOUSE)
    recover(capsys)
    older = Path("state/ledger.db").read_bytes()
    recover(capsys)
    assert doctor(capsys, code=0)["refused"] is None
    for path in Path("state").glob("ledger.db-*"):
        path.unlink()
    Path("state/ledger.db").write_bytes(older)
    refused = doctor(capsys, code=1)["refused"]
    assert "which is in use by a ledger with entry" in refused
    assert "take away first what it published and this one does not know: `penstock verify FILE` names it. Then" in refused


def recover(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ending:
        main(["recover", "flights.yaml"])
    assert ending.value.code == 0, capsys.readouterr().err
    capsys.readouterr()


def test_a_place_that_lost_its_rows_is_not_published_by_the_next_start(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(last_fails=False)
    monkeypatch.setattr("penstock.observe.driver.socket.gethostname", lambda: "elsewhere")
    shutil.rmtree(".penstock-staging")
    with pytest.raises(SystemExit):
        main(["status", "flights.yaml"])
    told = " ".join(capsys.readouterr().out.split())
    assert "A start would be refused: `penstock doctor flights.yaml` says what to do." in told
    assert "a start would be refused, and so would `penstock recover flights.yaml`" in told
    assert "publishes it, or the next start" not in told


def test_what_spark_says_of_a_lost_state_is_damage_of_the_checkpoint(tmp_path: Path) -> None:
    said = (
        "[STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY] Cannot restart streaming query with stateful operators because "
        "the state directory is empty or missing."
    )
    assert isinstance(error_from_query(said, checkpoint=SparkCheckpoint(tmp_path)), CheckpointDamaged)
    unloaded = from_spark(RuntimeError("[CANNOT_LOAD_STATE_STORE.CANNOT_READ_DELTA_FILE_NOT_EXISTS] An error occurred."))
    assert "`penstock checkpoint verify FILE` says which file of the state" in unloaded.remedy
