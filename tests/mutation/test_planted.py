"""The runner tells a caught mutant from one that survives, from one that does not even run, and from a wrong copy."""

import os
import signal
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.mutation.interpreter import Interpreter
from tests.mutation.mutant import Mutant
from tests.mutation.planted import Copy, Outcome, environment

pytestmark = pytest.mark.mutation

CAUGHT = Mutant(
    bug=2,
    name="caught",
    file="src/penstock/commit/identity.py",
    find="if decided.batch != batch:",
    replace="if False:",
    tests=("tests/unit/test_commit_identity.py",),
)
SURVIVES = replace(CAUGHT, name="survives", replace="if not decided.batch == batch:")
RAISES_NAME_ERROR = replace(CAUGHT, name="raises", replace="if nonsense:")
NOT_IMPORTABLE = replace(CAUGHT, name="not-importable", find="def recognise(", replace="def recognize(")
NO_SUCH_TEST = replace(CAUGHT, name="no-such-test", tests=("tests/unit/test_commit_identity.py::test_nothing",))


@pytest.fixture(scope="module")
def interpreter() -> Iterator[Interpreter]:
    with closing(Interpreter()) as running:
        yield running


@pytest.fixture
def copy(tmp_path: Path, interpreter: Interpreter) -> Copy:
    (tmp_path / "archive").mkdir()
    (tmp_path / "copy").mkdir()
    return Copy(tmp_path / "copy", archive=tmp_path / "archive", interpreter=interpreter, environment=environment())


def outcome_of(copy: Copy, mutant: Mutant) -> Outcome:
    copy.plant(mutant)
    return copy.run_tests(mutant.tests) if mutant.tests else copy.simulate()


def test_wrong_behaviour_is_caught(copy: Copy) -> None:
    outcome = outcome_of(copy, CAUGHT)
    assert outcome.caught, outcome
    assert "DID NOT RAISE OffsetsConflict" in outcome.failed[0]


def test_right_behaviour_survives(copy: Copy) -> None:
    outcome = outcome_of(copy, SURVIVES)
    assert outcome.passed, outcome
    assert not outcome.caught


@pytest.mark.parametrize(
    "mutant",
    [
        RAISES_NAME_ERROR,
        NOT_IMPORTABLE,
        NO_SUCH_TEST,
        replace(RAISES_NAME_ERROR, name="raises-in-the-simulator", find="if batch.batch_id == expected:", tests=()),
        replace(NOT_IMPORTABLE, name="not-importable-by-the-simulator", tests=()),
    ],
    ids=lambda mutant: mutant.name,
)
def test_what_does_not_run_proves_nothing(copy: Copy, mutant: Mutant) -> None:
    outcome = outcome_of(copy, mutant)
    assert not outcome.caught, outcome
    assert not outcome.passed, outcome


def test_another_copy_than_this_one_is_not_tested(copy: Copy, tmp_path: Path) -> None:
    (tmp_path / "copy/src").rename(tmp_path / "elsewhere")
    outcome = copy.run_tests(CAUGHT.tests)
    assert not outcome.passed
    assert not outcome.caught
    assert "was imported, not the package in" in outcome.output


@pytest.mark.parametrize("find", ["no such text", "raise "])
def test_a_text_that_is_not_there_once_is_told(copy: Copy, find: str) -> None:
    with pytest.raises(AssertionError, match="the mutant no longer applies"):
        copy.plant(replace(CAUGHT, find=find))


def test_a_run_without_an_end_is_killed_with_what_it_started(interpreter: Interpreter, tmp_path: Path) -> None:
    program, output = tmp_path / "program.py", tmp_path / "output.txt"
    program.write_text("import subprocess, time; print(subprocess.Popen(['sleep', '600']).pid, flush=True); time.sleep(600)")
    code = interpreter.run(program, cwd=tmp_path, env=dict(os.environ), output=output, longest_s=1)
    assert code == -signal.SIGKILL
    while Path(f"/proc/{output.read_text().strip()}/exe").exists():
        os.sched_yield()
    program.write_text("raise SystemExit(3)")
    assert interpreter.run(program, cwd=tmp_path, env={}, output=output, longest_s=60) == 3
