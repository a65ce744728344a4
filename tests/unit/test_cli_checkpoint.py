import json
import shutil
from pathlib import Path

import pytest

from penstock.cli.app import main

QUERY = "dc72533e-f9ea-46fb-9bc0-453efc1a564d"
METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":1760000000000,"conf":{"spark.sql.shuffle.partitions":"2"}}'


@pytest.fixture(name="checkpoint")
def _checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkpoint of a query that stopped between the sink and `commits/2`."""
    monkeypatch.chdir(tmp_path)
    root = tmp_path / "state" / "checkpoint"
    for folder in ("offsets", "commits"):
        (root / folder).mkdir(parents=True)
    (root / "metadata").write_text(json.dumps({"id": QUERY}))
    for batch in range(3):
        offset = {"offset": 1000 * (batch + 1), "timestamp": 1000 * (batch + 1)}
        metadata = METADATA.replace("1760000000000", str(1760000000000 + batch))
        (root / "offsets" / str(batch)).write_text(f"v1\n{metadata}\n{json.dumps(offset)}")
    for batch in range(2):
        (root / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    return root


def ran(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[object, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(words)
    printed = capsys.readouterr()
    return ended.value.code, printed.out, printed.err


def test_inspect(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = ran(capsys, "checkpoint", "inspect", str(checkpoint), "--json")
    found = json.loads(out)
    assert code == 0
    assert (found["query_id"], found["offsets"], found["commits"], found["ok"]) == (QUERY, [0, 2], [0, 1], True)
    assert (found["outlook"]["next"], found["outlook"]["batch_id"], found["outlook"]["is_replay"]) == ("replay", 2, True)
    code, out, _ = ran(capsys, "checkpoint", "inspect", str(checkpoint))
    assert code == 0
    assert out.splitlines()[:2] == [str(checkpoint), "The next start runs batch 2 AGAIN: same number, same input."]
    assert QUERY in out
    assert out.rstrip().endswith("No anomalies.")


def test_what_is_odd_is_shown_with_its_remedy(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (checkpoint / "metadata").unlink()
    code, out, _ = ran(capsys, "checkpoint", "inspect", str(checkpoint), "--json")
    anomalies = json.loads(out)["anomalies"]
    assert (code, len(anomalies)) == (5, 1), "Spark does not start without it"
    _, out, _ = ran(capsys, "checkpoint", "inspect", str(checkpoint))
    assert anomalies[0]["message"] in " ".join(out.split())
    assert anomalies[0]["remedy"] in " ".join(out.split())


def test_a_checkpoint_that_the_query_cannot_run_on_is_a_difference(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (checkpoint / "commits" / "2").write_text('v1\n{"nextBatchWatermarkMs":0}')
    assert ran(capsys, "checkpoint", "inspect", str(checkpoint))[0] == 0
    (checkpoint / "offsets" / "2").unlink()
    code, out, _ = ran(capsys, "checkpoint", "inspect", str(checkpoint), "--json")
    assert (code, json.loads(out)["outlook"]["next"]) == (5, "repeat")
    (checkpoint / "offsets" / "0").unlink()
    code, out, _ = ran(capsys, "checkpoint", "inspect", str(checkpoint), "--json")
    assert (code, json.loads(out)["outlook"]["next"]) == (5, "fail")
    assert ran(capsys, "checkpoint", "explain", str(checkpoint))[0] == 5


def test_explain(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = ran(capsys, "checkpoint", "explain", str(checkpoint))
    assert code == 0
    assert out.splitlines()[0] == "The next start runs batch 2 AGAIN: same number, same input."
    assert "Why" in out
    assert "Problems" not in out
    _, out, _ = ran(capsys, "checkpoint", "explain", str(checkpoint), "--json")
    assert set(json.loads(out)) == {"headline", "why", "input", "notes", "problems"}


def test_a_pipeline_file_stands_for_its_checkpoint(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("f.yaml").write_text("pipeline: p\nhome: ./state\nsources: {s: {format: rate}}\nsinks: {m: {type: memory}}\n")
    _, out, _ = ran(capsys, "checkpoint", "inspect", "f.yaml", "--json")
    assert json.loads(out)["location"] == str(checkpoint)


def test_there_is_no_such_directory(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ran(capsys, "checkpoint", "inspect", "none") == (
        2,
        "",
        "error: There is no directory none.\nName a checkpoint directory or a pipeline file.\n",
    )


@pytest.mark.parametrize("verb", ["inspect", "explain"])
def test_another_directory_is_no_checkpoint(checkpoint: Path, capsys: pytest.CaptureFixture[str], verb: str) -> None:
    code, _, err = ran(capsys, "checkpoint", verb, str(checkpoint.parent))
    assert code == 2
    assert "state is no checkpoint: it has none of commits, metadata, offsets, sources." in err
    (checkpoint.parent.parent / "new").mkdir()
    assert ran(capsys, "checkpoint", verb, "new")[0] == 0, "one that Spark fills at its first start"


def test_the_format_of_a_plan_that_cannot_be_read_is_unknown(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (checkpoint / "offsets" / "2").write_text("v1\n{")
    assert "planned batches    0 to 2 (format unknown)" in ran(capsys, "checkpoint", "inspect", str(checkpoint))[1]


def test_options_of_a_store_are_key_and_value(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (
        ["s3://b/x", "--option", "region"],
        ["gs://b/x", "--option", "a=b"],
        [str(checkpoint), "--option", "="],
    ):
        code, _, err = ran(capsys, "checkpoint", "inspect", *words)
        assert code == 2
        assert len(err.splitlines()) == 2


def test_verify(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = ran(capsys, "checkpoint", "verify", str(checkpoint), "--json")
    found = json.loads(out)
    assert (code, found["ok"], found["batches"], found["findings"]) == (0, True, 3, [])
    (checkpoint / "offsets" / "2").write_text((checkpoint / "offsets" / "1").read_text())
    code, out, _ = ran(capsys, "checkpoint", "verify", str(checkpoint), "--json")
    [finding] = json.loads(out)["findings"]
    assert (code, finding["file"], finding["severity"]) == (5, "offsets/2", "loses")
    _, out, _ = ran(capsys, "checkpoint", "verify", str(checkpoint))
    for field in ("file", "meaning", "consequence", "remedy"):
        assert finding[field] in " ".join(out.split())


def test_what_may_be_repaired_is_said_with_the_command(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (checkpoint / "metadata").write_text("")
    with pytest.raises(SystemExit):
        main(["checkpoint", "verify", str(checkpoint)])
    assert f"`penstock checkpoint repair {checkpoint}` shows what it can mend" in capsys.readouterr().out


def test_an_older_entry_is_no_newer_one(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It names offsets that are not behind those before it, and Spark plans no two batches at the same time."""
    older = (checkpoint / "offsets" / "1").read_text().replace('"offset": 2000', '"offset": 3000')
    (checkpoint / "offsets" / "2").write_text(older)
    code, out, _ = ran(capsys, "checkpoint", "verify", str(checkpoint), "--json")
    assert code == 5
    assert "was planned in the same millisecond as offsets/1" in json.loads(out)["findings"][0]["meaning"]


@pytest.mark.parametrize(("case", "codes"), [("named", (0, 0)), ("union", (0, 5))])
def test_a_source_may_be_taken_out_if_it_has_a_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], case: str, codes: tuple[int, int]
) -> None:
    root = Path(shutil.copytree(Path(__file__).parent / "checkpoints" / case / "checkpoint", tmp_path / "checkpoint"))
    newest = root / "offsets" / "2"
    before = ran(capsys, "checkpoint", "verify", str(root))[0]
    newest.write_text(newest.read_text().rpartition("\n")[0])
    (root / "commits" / "2").unlink()
    code, out, _ = ran(capsys, "checkpoint", "verify", str(root), "--json")
    assert (before, code) == codes
    assert ("has fewer sources than offsets/1" in out) == (case == "union")


def test_rewind_is_shown_done_and_taken_back(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def content() -> dict[str, bytes]:
        files = {str(path.relative_to(checkpoint)): path for path in checkpoint.rglob("*") if path.is_file()}
        return {name: path.read_bytes() for name, path in files.items() if "penstock-acts" not in name}

    before = content()
    words = ("checkpoint", "rewind", str(checkpoint), "--to-batch", "1")
    code, out, _ = ran(capsys, *words, "--json")
    shown = json.loads(out)
    assert (code, shown["done"], shown["backup"], shown["next_batch_id"]) == (0, False, None, 2)
    assert [(step["change"], step["place"]) for step in shown["steps"]] == [("remove", "offsets/2")]
    assert content() == before
    code, out, _ = ran(capsys, *words, "--yes", "--json")
    assert (code, json.loads(out)["done"], json.loads(out)["backup"]) == (0, True, "penstock-acts/0001-rewind")
    assert before.keys() - content().keys() == {"offsets/2"}
    assert "there is nothing to change" in ran(capsys, *words, "--yes")[1]
    undo = ("checkpoint", "rewind", str(checkpoint), "--undo")
    assert json.loads(ran(capsys, *undo, "--json")[1])["done"] is False
    assert json.loads(ran(capsys, *undo, "--yes", "--json")[1])["files"] == 1
    assert content() == before
    code, _, err = ran(capsys, *undo, "--yes")
    assert (code, err.splitlines()[1]) == (3, "There is nothing to undo.")


def test_rewind_takes_a_batch_or_undo(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([], ["--undo", "--to-batch", "1"]):
        code, _, err = ran(capsys, "checkpoint", "rewind", str(checkpoint), *words)
        assert code == 2
        assert "takes one of --to-batch N and --undo" in err


def test_gc_and_repair(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (checkpoint / "offsets" / ".2.aa.tmp").write_text("v1")
    code, out, _ = ran(capsys, "checkpoint", "gc", str(checkpoint), "--json")
    assert (code, [step["place"] for step in json.loads(out)["steps"]]) == (0, ["offsets/.2.aa.tmp"])
    (checkpoint / "metadata").unlink()
    code, _, err = ran(capsys, "checkpoint", "repair", str(checkpoint))
    assert code == 3
    assert "cannot be repaired without the risk that rows are lost or repeated: metadata is missing" in err
    code, out, _ = ran(capsys, "checkpoint", "repair", str(checkpoint), "--query-id", QUERY, "--yes", "--json")
    assert (code, json.loads(out)["done"]) == (0, True)
    assert json.loads((checkpoint / "metadata").read_text()) == {"id": QUERY}
    assert ran(capsys, "checkpoint", "verify", str(checkpoint))[0] == 0
