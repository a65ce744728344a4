"""The protocol under single faults, pairs of them, two interleaved drivers and random schedules; and the simulator itself.

A failure names the seed and the command that replays it. The whole campaigns run with `python -m penstock.testing.simulator`.
"""

import os
import random
import re
import subprocess
import sys
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

from penstock.errors import Usage
from penstock.testing.simulator.command import main
from penstock.testing.simulator.explore import interleavings, seconds, shape, singles, worlds
from penstock.testing.simulator.schedule import SMALL, Fault, Kind, Schedule, Shape, ViolationError, draw, parse_faults
from penstock.testing.simulator.simulation import Simulation, run
from penstock.testing.simulator.targets import Decided, History, Targets

PAIRS_TRIED = 1_500
INTERLEAVINGS_TRIED = 700
RANDOM_TRIED = 1_000


@pytest.mark.parametrize("world", worlds(), ids=["as it is", "commits lost", "published behind"])
def test_every_single_fault_leaves_every_row_once(world: Shape) -> None:
    struck: Counter[Kind] = Counter()
    for schedule in singles(world):
        assert run(schedule).struck == 1
        struck[schedule.faults[0].kind] += 1
    assert set(struck) == set(Kind)


@pytest.mark.parametrize("world", worlds(), ids=["as it is", "commits lost", "published behind"])
def test_pairs_of_faults_leave_every_row_once(world: Shape) -> None:
    """A slice that is different in every run; all of them: `--pairs`."""
    seed = int.from_bytes(os.urandom(4), "big")
    print(f"seed {seed}")
    chosen = random.Random(seed)
    firsts = list(singles(world))
    for _ in range(PAIRS_TRIED // 30):
        first = chosen.choice(firsts)
        every = list(seconds(first, run(first)))
        for schedule in chosen.sample(every, min(30, len(every))):
            run(schedule)


@pytest.mark.parametrize("behind", [False, True])
def test_two_drivers_interleaved_leave_every_row_once(behind: bool) -> None:  # noqa: FBT001
    """A slice that is different in every run; all of them: `--interleavings`."""
    seed = int.from_bytes(os.urandom(4), "big")
    print(f"seed {seed}")
    every = list(interleavings(shape(lose_commits=False, behind=behind)))
    for schedule in random.Random(seed).sample(every, INTERLEAVINGS_TRIED):
        run(schedule)


@pytest.mark.parametrize("first_seed", [0, int.from_bytes(os.urandom(4), "big")], ids=["fixed", "fresh"])
def test_random_schedules_leave_every_row_once(first_seed: int) -> None:
    print(f"first seed {first_seed}")
    struck = sum(run(draw(seed)).struck for seed in range(first_seed, first_seed + RANDOM_TRIED))
    assert struck > RANDOM_TRIED


def test_random_schedules_reach_every_kind_of_fault_and_every_kind_of_operation() -> None:
    operations: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    for seed in range(200):
        simulation = Simulation(draw(seed))
        simulation.run()
        operations.update(operation for _, operation, _ in simulation.trace)
        kinds.update(subject.split(":")[1] for _, operation, subject in simulation.trace if operation == "fault")
    assert set(kinds) == {kind.value for kind in Kind}
    assert {"put_if_absent", "get", "keys", "put", "delete"} <= set(operations)
    assert {"stage", "marker", "raise marker", "promote", "transact", "write", "list", "collect", "read"} <= set(operations)
    assert {"plan", "commit"} <= set(operations)


def test_a_zombie_that_wakes_after_everything_was_published_and_removed_brings_nothing_back() -> None:
    undisturbed = run(Schedule(0, SMALL)).steps
    for step in range(1, undisturbed + 1):
        simulation = Simulation(Schedule(0, SMALL, (Fault(step, Kind.STALL),)))
        simulation.run()
        targets: Targets = simulation.world.targets
        assert targets.files.visible == {}
        assert targets.files.content() == targets.files.expected()


def test_the_same_seed_gives_the_same_trace_in_every_process() -> None:
    code = "\n".join(
        (
            "from penstock.testing.simulator.schedule import draw",
            "from penstock.testing.simulator.simulation import Simulation",
            "for seed in range(40):",
            "    simulation = Simulation(draw(seed))",
            "    simulation.run()",
            "    print(simulation.digest())",
        )
    )
    outputs = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert outputs[0] == outputs[1]
    assert len(set(outputs[0].split())) == 40


def test_a_drawn_schedule_written_out_replays_as_itself() -> None:
    for schedule in islice(singles(SMALL), 0, None, 37):
        assert parse_faults(",".join(map(str, schedule.faults))) == schedule.faults


def test_a_violation_is_printed_with_the_command_that_replays_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("penstock.commit.coordinator.recognise", lambda batch, **_: None)
    with pytest.raises(ViolationError) as found:
        Counter(run(draw(seed)).struck for seed in range(100))
    command = str(found.value).rpartition("Replay: python -m penstock.testing.simulator ")[2]
    assert main(command.split()) == 1
    printed = capsys.readouterr().out
    assert str(found.value).splitlines()[0] in printed
    assert printed.endswith(f"Replay: python -m penstock.testing.simulator {command}\n")
    assert "put_if_absent" in printed


def test_an_enumerated_schedule_replays_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    schedule = Schedule(0, shape(lose_commits=True), (Fault(12, Kind.LOST), Fault(40, Kind.STALL, 9)))
    arguments = schedule.command.removeprefix("python -m penstock.testing.simulator ").split()
    assert arguments == ["--seed", "0", "--schedule", "12:lost,40:stall:9", "--lose-commits"]
    simulation = Simulation(schedule)
    simulation.run()
    assert main([*arguments, "--quiet"]) == 0
    assert f"trace {simulation.digest()}" in capsys.readouterr().out


def test_a_campaign_on_two_processes_tells_how_many_passed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--schedules", "300", "--first-seed", "7", "--processes", "2"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("random schedules: 300 passed in ")
    assert told.endswith(" schedules a minute\n")


@pytest.mark.parametrize(
    ("greenlet", "code", "said"), [("there", 0, "every invariant holds"), ("missing", 1, "pip install 'greenlet<")]
)
def test_it_says_which_extra_it_needs(greenlet: str, code: int, said: str) -> None:
    hidden = "" if greenlet == "there" else "sys.modules['greenlet'] = None; "
    script = f"import runpy, sys; {hidden}sys.argv = ['x', '--seed', '7', '--quiet']; "
    script += "runpy.run_module('penstock.testing.simulator', run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    assert said in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_what_is_for_testing_needs_is_in_its_extra() -> None:
    """Not only in the extra of those who develop Penstock."""
    extras = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    [testing] = re.findall(r"^testing = \[(.*)\]$", extras, re.MULTILINE)
    assert {name for name in ("greenlet", "pytest") if f'"{name}>=' in testing} == {"greenlet", "pytest"}


@pytest.mark.parametrize("text", ["x", "1:none", "1:stall:x", "1:kill,"])
def test_a_schedule_that_is_none_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Usage):
        parse_faults(text)
    assert main(["--seed", "0", "--schedule", text]) == 2
    assert main([]) == 2


@pytest.mark.parametrize(
    ("generation", "batch_id", "token", "violation"),
    [
        (1, 1, "g1-b1-", "named as if they were older"),
        (1, 0, "g1-b0-", "named as if they were older"),
        (1, 2, "g1-b1-", "is decided as a file of"),
    ],
)
def test_decisions_that_readers_could_not_order_by_the_names_of_files_are_violations(
    generation: int, batch_id: int, token: str, violation: str
) -> None:
    def decision(query: str, number: int, attempt: str) -> dict[str, object]:
        offsets = [{"end": "1"}]
        return {
            "query_id": query,
            "batch_id": number,
            "offsets": offsets,
            "staged": [{"attempt": attempt, "sink": "", "name": ""}],
        }

    targets = Targets()
    for target in targets.all:
        target.raise_marker(2)
    history = History(targets)
    history.generation = generation
    history.newest = Decided(2, "older", 1, generation, 1, frozenset())
    with pytest.raises(ViolationError, match=violation):
        history._decide(3, generation, decision("newer", batch_id, token))
