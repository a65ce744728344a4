"""Two pipelines' contents compared by their ledgers, on real ones with real accounts."""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from tests.crash.commandline import Ended, penstock
from tests.unit.parquet_target import SCHEMA, rows, stage
from tests.unit.test_run_operations import Driver

from penstock import Pipeline
from penstock.commit.outcome import StagedBatch
from penstock.core.model import BatchId, Generation
from penstock.run.assembly import ledger_of
from penstock.sink.parquet import ParquetSink

FILE = """
pipeline: {name}
home: {name}
sources: {{t: {{format: csv, path: in, schema: "id LONG"}}}}
sinks: {{{sink}: {{type: parquet, accounts: {{only: {name}-lake}}}}}}
"""


def deliver(root: Path, name: str, batches: Mapping[int, Sequence[int]], *, sink: str = "lake") -> None:
    """Deliver batches of rows with these ids by a pipeline of that name."""
    (root / f"{name}.yaml").write_text(FILE.format(name=name, sink=sink))
    driver = Driver(Pipeline.from_file(root / f"{name}.yaml").plan, root / name / "checkpoint")
    lake = driver.sink
    assert isinstance(lake, ParquetSink)
    with closing(driver.runtime):
        for number, ids in batches.items():
            driver.plan(number)
            batch = driver.runtime.checkpoint.batch(BatchId(number), driver.runtime.source_names(BatchId(number)))

            def staged(generation: Generation, ids: Sequence[int] = ids, number: int = number) -> StagedBatch:
                pieces = stage(lake, rows(*ids), batch_id=number, generation=generation) if ids else ()
                return StagedBatch(pieces=tuple(pieces), rows_in=len(ids), schema=SCHEMA)

            driver.coordinator.deliver(batch, staged)


def compare(root: Path, *words: str) -> Ended:
    return penstock("compare", "a.yaml", "b.yaml", *words, directory=root)


def test_equal_contents(tmp_path: Path) -> None:
    deliver(tmp_path, "a", {0: [1, 2], 1: [3], 2: [4]})
    deliver(tmp_path, "b", {0: [2, 1], 1: [3]})
    ended = compare(tmp_path, "--json")
    assert ended.code == 0, str(ended)
    found = ended.last
    assert (found["same"], found["from_batch"], found["to_batch"], found["differences"]) == (True, 0, 1, [])
    [total] = found["totals"]
    assert total["first"]["digest"] == total["second"]["digest"]
    assert "Batches 0 to 1 of a and b." in compare(tmp_path).out


def test_a_pipeline_that_has_not_run_has_no_batch_in_common(tmp_path: Path) -> None:
    deliver(tmp_path, "a", {0: [1, 2]})
    (tmp_path / "b.yaml").write_text(FILE.format(name="b", sink="lake"))
    ended = compare(tmp_path)
    assert (ended.code, ended.out.strip()) == (0, "a and b have no batch in common.")


def test_batches_that_differ_and_their_rows(tmp_path: Path) -> None:
    deliver(tmp_path, "a", {0: [1, 2], 1: [3, 4, 4], 2: [], 3: [7]})
    deliver(tmp_path, "b", {0: [1, 2], 1: [3, 5], 2: [6], 3: [7]}, sink="shadow")
    ended = compare(tmp_path, "--json", "--rows", "5")
    assert ended.code == 5, str(ended)
    changed, added = ended.last["differences"]
    assert (changed["batch_id"], changed["sinks"], changed["same_input"]) == (1, {"first": "lake", "second": "shadow"}, True)
    assert [(row["row"]["id"], row["times"]) for row in changed["rows"]] == [("4", 2), ("5", -1)]
    assert (added["batch_id"], added["first"]["rows"], added["second"]["rows"]) == (2, 0, 1)
    shown = compare(tmp_path, "--rows", "5").out
    assert "batch 1, lake, shadow: 3 rows and 2 rows" in shown
    assert "only in a: {'id': '4'" in shown
    assert compare(tmp_path, "--from-batch", "3").code == 0


def test_batches_that_were_cut_elsewhere_are_the_same_in_all(tmp_path: Path) -> None:
    deliver(tmp_path, "a", {0: [1, 2], 1: [3]})
    deliver(tmp_path, "b", {0: [1], 1: [2, 3]})
    found = compare(tmp_path, "--json")
    assert found.code == 0, str(found)
    assert len(found.last["differences"]) == 2


def test_what_cannot_be_compared(tmp_path: Path) -> None:
    deliver(tmp_path, "a", {0: [1], 1: [2], 2: [3]})
    deliver(tmp_path, "b", {0: [1]}, sink="shadow")
    assert "has no sink 'lake'. It has shadow." in " ".join(compare(tmp_path, "--sink", "lake").err.split())
    assert compare(tmp_path, "--sink", "lake=shadow").code == 0
    assert "have no batch in common" in compare(tmp_path, "--from-batch", "1").out
    with closing(ledger_of(Pipeline.from_file(tmp_path / "a.yaml").plan)) as ledger:
        decided = [entry.position for entry in ledger.newest_first()]
        ledger.prune(below=decided[1])
    refused = compare(tmp_path, "--from-batch", "0", "--json")
    assert refused.code == 3
    assert "tells of batches from 1 on, not from 0 on" in json.loads(refused.out)["error"]["message"]
    assert compare(tmp_path).code == 0


CHANGE = (Path(__file__).parents[2] / "docs" / "howto" / "change.md").read_text(encoding="utf-8")


def test_the_commands_of_the_page(tmp_path: Path) -> None:
    deliver(tmp_path, "old", {0: [1], 1: [2], 2: [3, 4]})
    deliver(tmp_path, "new", {0: [1], 1: [5], 2: [3]})
    plain, detailed = re.findall(r"^penstock (compare .*)$", CHANGE, re.MULTILINE)
    ended = penstock(*shlex.split(plain), directory=tmp_path)
    assert ended.code == 5
    assert "batch 1, lake: 1 row and 1 row" in ended.out
    ended = penstock(*shlex.split(detailed), directory=tmp_path)
    assert ended.code == 5
    assert "batch 1" not in ended.out
    assert "batch 2, lake: 2 rows and 1 row" in ended.out
    assert "only in old: {'id': '4'" in ended.out


@pytest.mark.parametrize("words", [["--from-batch", "-1"], ["--rows", "-1"]])
def test_wrong_numbers_are_refused(tmp_path: Path, words: list[str]) -> None:
    deliver(tmp_path, "a", {0: [1]})
    deliver(tmp_path, "b", {0: [1]})
    assert compare(tmp_path, *words).code == 2
