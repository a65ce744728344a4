"""`verify --accept-removed`: whole files that are missing can be accepted as removed on purpose, and nothing else."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from tests.unit.removed_world import World
from tests.unit.test_cli_text import printed

from penstock.cli.output import json_line
from penstock.cli.verify import _text as verify_text
from penstock.cli.verify import acceptance_fields, acceptance_text, fields_of
from penstock.commit import removal as recording
from penstock.core import faults
from penstock.core.model import AccountName, Decided, Position, RemovalAccepted, SinkName
from penstock.errors import BatchForgotten, PublishFailed, Refused, Retryable, Usage
from penstock.ledger.base_ledger import BaseLedger
from penstock.observe.history import history
from penstock.run import removal
from penstock.run.assembly import ledger_of
from penstock.run.operations import adopt, recover, verify
from penstock.run.reading import read_table
from penstock.run.status import status_of

LAKE, A, B = SinkName("lake"), AccountName("a"), AccountName("b")


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    faults.arm("")


@pytest.fixture(scope="module")
def delivered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four batches, delivered once for all tests: each works on a copy."""
    return World(tmp_path_factory.mktemp("delivered")).delivered().root


@pytest.fixture
def world(tmp_path: Path, delivered: Path) -> World:
    shutil.copytree(delivered, tmp_path, dirs_exist_ok=True)
    return World(tmp_path)


def test_whole_batches_are_accepted_and_what_is_left_is_verified(world: World) -> None:
    world.remove(0, 1)
    asked = world.accept(yes=False)
    assert not asked.verification.ok
    [missing] = asked.files
    assert (missing.account, missing.batches, missing.totals.files, missing.totals.rows) == (A, 2, 4, 6)
    assert world.acts() == []
    text = printed(acceptance_text(asked))
    assert text[-2] == "Missing, with nothing else wrong there: 4 files with 6 rows. Nothing was changed."
    assert text[-1] == "If all of it was removed on purpose, record that with --yes --reason TEXT."
    assert not any("--accept-removed" in line for line in text), "that is the command which prints this"
    done = world.accept()
    assert done.done
    assert done.verification.ok, done.verification
    [act] = world.acts()
    assert act.reason == "kept for 90 days"
    [[first, last]] = act.removals[0].decided
    assert last == first + 1
    assert act.removals[0].files == ()
    found = verify(world.plan)
    assert found.ok
    assert found.removed is not None
    assert found.removed.totals[LAKE][A].rows == 6
    assert found.removed.accepted_at_ms is not None
    fields: dict[str, Any] = json.loads(json_line(fields_of(found)))
    account = fields["sinks"]["lake"]["accounts"]["a"]
    assert (account["rows_expected"], account["rows_found"], account["rows_removed"]) == (6, 6, 6)
    assert fields["removed_at"] == done.positions[0]
    text = printed(verify_text(found))
    assert text[-1] == (
        "Every row of the ledger, but for what was removed on purpose, is in its place once, and nothing else is."
    )
    assert any(line.startswith("lake: 6 rows of 4 files were removed on purpose and are not expected") for line in text)
    assert world.accept().files == ()
    assert len(world.acts()) == 1


def test_history_status_and_files_agree_with_it(world: World) -> None:
    world.remove(0)
    world.accept()
    with closing(ledger_of(world.plan)) as ledger:
        newest = next(history(ledger.newest_first()))
    assert newest.kind == "removal_accepted"
    assert newest.text.startswith("3 rows of lake were removed on purpose, by ")
    assert newest.text.endswith(": kept for 90 days")
    assert newest.accounts[LAKE][A].files == 2
    found = status_of(world.plan)
    assert found.removed[LAKE][A].rows == 3
    assert found.totals[LAKE][A].rows == 12
    there = read_table(world.plan, "lake", None, None, added=False, counted=False)
    assert {file.batch_id for file in there.files if file.account == A} == {1, 2, 3}


def test_single_files_of_a_batch_are_accepted_by_name(world: World) -> None:
    [gone] = [path for path in world.files("a", 1) if "place=there" in str(path)]
    gone.unlink()
    done = world.accept()
    assert done.verification.ok
    [act] = world.acts()
    assert act.removals[0].decided == ()
    assert act.removals[0].files == (f"place=there/{gone.name}",)
    assert verify(world.plan).ok


def test_a_partition_that_was_removed_is_accepted_in_entries_of_bounded_size(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "FILES_PER_ENTRY", 3)
    for account in ("a", "b"):
        shutil.rmtree(world.account(account) / "place=there")
    done = world.accept()
    assert done.verification.ok
    assert done.positions == tuple(range(done.positions[0], done.positions[0] + 4))
    assert all(sum(len(each.files) for each in act.removals) <= 3 for act in world.acts())
    assert sum(len(each.files) for act in world.acts() for each in act.removals) == 8
    assert verify(world.plan).ok


def test_an_acceptance_that_was_killed_between_its_entries_is_completed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "FILES_PER_ENTRY", 3)
    shutil.rmtree(world.account("a") / "place=there")
    whole = removal.append_removal
    taken: list[Position] = []

    def killed(*given: Any, **named: Any) -> Any:
        if taken:
            raise KeyboardInterrupt
        entry = whole(*given, **named)
        taken.append(entry.position)
        return entry

    monkeypatch.setattr(removal, "append_removal", killed)
    with pytest.raises(KeyboardInterrupt):
        world.accept()
    monkeypatch.setattr(removal, "append_removal", whole)
    assert not verify(world.plan).ok
    rest = world.accept()
    assert sum(each.totals.files for each in rest.files) == 1
    assert verify(world.plan).ok


@pytest.mark.parametrize("home", ["sqlite", "directory"])
def test_an_answer_that_was_lost_does_not_accept_twice(tmp_path: Path, home: str) -> None:
    world = World(tmp_path, ledger=None if home == "sqlite" else f"file://{tmp_path}/ledger").delivered()
    world.remove(0)
    faults.arm("ledger.sqlite_commit=lost" if home == "sqlite" else "ledger.append=lost")
    done = world.accept()
    faults.arm("")
    assert done.verification.ok
    assert len(world.acts()) == 1
    found = verify(world.plan)
    assert found.ok
    assert found.removed is not None
    assert found.removed.totals[LAKE][A].rows == 3


@pytest.mark.parametrize("damage", ["changed", "truncated", "foreign", "copied"])
def test_what_is_there_and_wrong_is_never_accepted(world: World, damage: str) -> None:
    world.remove(0)
    victim = world.files("a", 2)[0]
    if damage == "changed":
        table = pq.ParquetFile(victim).read()
        pq.write_table(table.slice(0, 0), victim)
    elif damage == "truncated":
        os.truncate(victim, 40)
    elif damage == "foreign":
        pq.write_table(pq.ParquetFile(victim).read().slice(1), victim.with_name("mine.parquet"))
    else:
        shutil.copy(victim, victim.with_name(f"copy-of-{victim.name}"))
    world.remove(1, account="b")
    done = world.accept()
    assert [each.account for each in done.files] == [B]
    assert not done.verification.ok
    assert {problem.account for problem in done.verification.sinks[LAKE].problems} == {A}
    assert not verify(world.plan).ok


def test_nothing_is_accepted_where_nothing_is_missing(world: World) -> None:
    done = world.accept()
    assert not done.done
    assert done.verification.ok
    assert printed(acceptance_text(done))[-1] == "No file is missing that can be accepted as removed on purpose."
    victim = world.files("a", 2)[0]
    os.truncate(victim, 40)
    text = printed(acceptance_text(world.accept()))
    assert " ".join(text).count("What else differs cannot be accepted") == 1
    assert world.acts() == []


def test_a_file_that_comes_back_is_reported(world: World) -> None:
    gone = world.remove(0, 1)
    world.accept()
    world.restore(gone[0])
    found = verify(world.plan)
    [problem] = found.sinks[LAKE].problems
    assert problem.message.endswith("was accepted as removed on purpose, and is there again.")
    assert (problem.account, problem.batch_id) == (A, 0)
    gone[0].unlink()
    assert verify(world.plan).ok


def test_a_file_that_comes_back_in_place_of_another_one_is_reported(world: World) -> None:
    """Both are named, and neither is accepted."""
    gone = world.remove(0)
    world.accept()
    world.restore(*gone)
    world.remove(1)
    done = world.accept()
    assert done.files == ()
    messages = [problem.message for problem in done.verification.sinks[LAKE].problems]
    assert sum("is there again" in message for message in messages) == 2
    assert sum("is missing" in message for message in messages) == 2


def test_no_publication_brings_back_what_was_removed(world: World) -> None:
    """The newest decision is published again by every start; its marker says that it was there."""
    world.remove(3)
    recovered = recover(world.plan)
    assert not recovered.rolled_forward
    assert world.files("a", 3) == []
    assert world.accept().verification.ok
    assert not recover(world.plan).rolled_forward
    assert world.files("a", 3) == []
    assert verify(world.plan).ok


def test_a_driver_that_runs_goes_on_behind_the_act(world: World) -> None:
    run = world.driver()
    run.go_on(4)
    world.remove(0)
    assert world.accept().verification.ok
    run.go_on(5)
    world.remove(1)
    assert world.accept().verification.ok
    world.remove(2)
    assert world.accept().verification.ok
    run.go_on(6)
    generations = {act.reason for act in world.acts()}
    assert generations == {"kept for 90 days"}
    run.runtime.close()
    with closing(ledger_of(world.plan)) as ledger:
        entries = list(ledger.newest_first())
    assert [type(entry.body) for entry in entries[:6]] == [
        Decided, RemovalAccepted, RemovalAccepted, Decided, RemovalAccepted, Decided
    ]  # fmt: skip
    assert len({entry.generation for entry in entries[:6]}) == 1
    assert entries[0].summary.published_at == entries[3].position
    assert verify(world.plan).ok
    recover(world.plan)
    assert verify(world.plan).ok


def test_an_outstanding_decision_is_recovered_first(world: World) -> None:
    run = world.driver()
    faults.arm("rename.move=error")
    with pytest.raises(PublishFailed):
        run.deliver(4)
    faults.arm("")
    run.runtime.close()
    world.remove(0)
    assert len(world.accept(yes=False).files) == 1
    with pytest.raises(Retryable, match=r"Batch 4 is decided, and not in every sink yet: nothing was accepted\.") as caught:
        world.accept()
    assert "penstock recover" in caught.value.remedy
    recover(world.plan)
    assert world.accept().verification.ok


def test_a_place_that_is_not_there_is_not_taken_for_removed(world: World) -> None:
    shutil.move(world.root / "lake", world.root / "unmounted")
    for path in (world.account("a"), world.account("b")):
        path.mkdir(parents=True)
    with pytest.raises(Refused, match="marker"):
        world.accept()
    assert world.acts() == []


def test_two_operators_do_not_accept_the_same_files_twice(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.remove(0)
    compare = removal.verify

    def compare_slowly(*given: Any, **named: Any) -> Any:
        found = compare(*given, **named)
        monkeypatch.setattr(removal, "verify", compare)
        assert world.accept().done
        return found

    monkeypatch.setattr(removal, "verify", compare_slowly)
    with pytest.raises(Refused, match="Another removal was accepted at position"):
        world.accept()
    assert len(world.acts()) == 1
    assert verify(world.plan).ok


def prune(world: World, *, below_batch: int) -> None:
    with closing(ledger_of(world.plan)) as ledger:
        at = next(
            entry.position
            for entry in ledger.newest_first()
            if isinstance(entry.body, Decided) and entry.body.decision.batch.batch_id == below_batch
        )
        assert isinstance(ledger, BaseLedger)
        ledger.prune(below=at)


def test_all_files_of_forgotten_batches_are_accepted_and_some_of_them_only_on_request(world: World) -> None:
    """Of forgotten batches only the sum is known."""
    prune(world, below_batch=2)
    world.remove(0, 2)
    asked = world.accept(yes=False)
    [[_, withheld]] = asked.withheld
    assert (withheld.older.rows, withheld.older.files) == (3, 2)
    assert (withheld.unchecked.rows, withheld.unchecked.files) == (3, 2)
    assert [files.totals.rows for files in asked.files] == [3], "of the batch that is retained"
    assert " ".join(printed(acceptance_text(asked))).count("--forgotten accepts what is missing") == 1
    done = world.accept()
    assert not done.verification.ok
    assert not verify(world.plan).ok
    nothing = world.accept()
    assert nothing.files == ()
    assert printed(acceptance_text(nothing))[-1].endswith("takes what is left as it is.")
    asked = world.accept(yes=False, forgotten=True)
    assert any("are left, and are taken as they are" in line for line in printed(acceptance_text(asked)))
    done = world.accept(forgotten=True)
    assert done.verification.ok
    newest = world.acts()[0].removals[0]
    assert (newest.decided, newest.files, newest.totals.rows, newest.unchecked.rows) == ((), (), 3, 3)
    assert verify(world.plan).ok
    with closing(ledger_of(world.plan)) as ledger:
        assert "2 files of forgotten batches were taken as they were" in next(history(ledger.newest_first())).text
    world.remove(1)
    assert not verify(world.plan).ok
    assert world.accept().verification.ok


def test_forgotten_files_with_other_rows_but_not_fewer_are_never_accepted(world: World) -> None:
    prune(world, below_batch=2)
    victim = world.files("a", 0)[0]
    table = pq.ParquetFile(victim).read()
    pq.write_table(table.set_column(0, table.schema.field(0), [pc.add(table.column(0), 1)]), victim)
    found = world.accept(forgotten=True)
    assert not found.verification.ok
    assert (found.files, found.withheld) == ((), ())


def test_all_files_of_forgotten_batches_are_accepted_at_once(world: World) -> None:
    prune(world, below_batch=2)
    world.remove(0, 1)
    done = world.accept()
    assert done.verification.ok
    [missing] = done.files
    assert (missing.totals.files, missing.totals.rows, missing.batches, missing.oldest) == (4, 6, 0, None)
    assert any("all forgotten" in line for line in printed(acceptance_text(done)))
    assert verify(world.plan).ok


def test_an_acceptance_outlives_its_entry(world: World) -> None:
    gone = world.remove(0)
    world.accept()
    run = world.driver()
    run.go_on(4, 5)
    run.runtime.close()
    prune(world, below_batch=4)
    assert world.acts() == []
    found = verify(world.plan)
    assert found.ok
    assert found.removed is not None
    assert found.removed.accepted_at_ms is None
    world.restore(*gone)
    assert not verify(world.plan).ok


def test_before_takes_only_what_was_decided_before(world: World) -> None:
    world.remove(0, 1, 2)
    done = world.accept(before="2")
    assert [each.totals.rows for each in done.files] == [6]
    assert {problem.batch_id for problem in done.verification.sinks[LAKE].problems} == {2}
    assert {problem.batch_id for problem in verify(world.plan).sinks[LAKE].problems} == {2}
    assert world.accept(before=datetime.now().astimezone().isoformat()).verification.ok


def test_a_limit_that_the_ledger_cannot_tell_is_refused(world: World) -> None:
    world.remove(0)
    with pytest.raises(Usage, match="neither the number of a batch nor a date"):
        world.accept(before="yesterday")
    with pytest.raises(BatchForgotten, match="does not tell where batch 17 is"):
        world.accept(before="17")
    assert world.accept(before="2001-01-01").files == ()
    prune(world, below_batch=2)
    with pytest.raises(BatchForgotten, match="does not tell which batches were decided before 2001-01-01"):
        world.accept(before="2001-01-01")


def test_adopting_and_removing_do_not_disturb_each_other(world: World) -> None:
    world.remove(0)
    world.accept()
    shutil.rmtree(world.root / "home" / "checkpoint")
    assert adopt(world.plan, reason="the disk was lost", yes=True).done
    world.remove(1)
    assert world.accept().verification.ok
    assert verify(world.plan).ok


def test_what_json_says(world: World) -> None:
    world.remove(0)
    found: dict[str, Any] = json.loads(json_line(acceptance_fields(world.accept())))
    assert found["ok"]
    assert found["removal"]["done"]
    [missing] = found["removal"]["missing"]
    assert {key: missing[key] for key in ("sink", "account", "batches", "files", "rows")} == {
        "sink": "lake",
        "account": "a",
        "batches": 1,
        "files": 2,
        "rows": 3,
    }
    assert missing["oldest"]["batch_id"] == missing["newest"]["batch_id"] == 0
