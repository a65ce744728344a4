"""The runner tells a caught mutant from one that survives, from one that does not even run, and from a wrong copy."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import penstock
from tests.mutation.collected import Collected
from tests.mutation.in_place import NotInPlaceError, plant
from tests.mutation.interpreter import Interpreter
from tests.mutation.mutant import Mutant
from tests.mutation.planted import Copy, Outcome, environment

pytestmark = pytest.mark.mutation

CAUGHT = Mutant(
    bug=2,
    name="caught",
    file="src/penstock/commit/identity.py",
    find="if _by_source(decided.batch) != _by_source(batch):",
    replace="if False:",
    tests=("tests/unit/test_commit_identity.py",),
)
SURVIVES = replace(CAUGHT, name="survives", replace="if not _by_source(decided.batch) == _by_source(batch):")
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


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collected]:
    with closing(Collected(CAUGHT.tests, environment=environment(), directory=tmp_path_factory.mktemp("collected"))) as running:
        yield running


def test_wrong_behaviour_is_caught_in_a_fork_too(collected: Collected) -> None:
    outcome = collected.try_mutant(CAUGHT)
    assert outcome is not None
    assert outcome.caught, outcome
    assert "DID NOT RAISE OffsetsConflict" in outcome.failed[0]
    assert collected.try_tests(CAUGHT.tests, longest_s=60).passed


def test_right_behaviour_survives_in_a_fork_too(collected: Collected) -> None:
    outcome = collected.try_mutant(SURVIVES)
    assert outcome is not None
    assert outcome.passed, outcome
    assert not outcome.caught


@pytest.mark.parametrize("mutant", [RAISES_NAME_ERROR, NO_SUCH_TEST], ids=lambda mutant: mutant.name)
def test_what_does_not_run_proves_nothing_in_a_fork_either(collected: Collected, mutant: Mutant) -> None:
    outcome = collected.try_mutant(mutant)
    assert outcome is not None
    assert not outcome.caught, outcome
    assert not outcome.passed, outcome


def test_what_is_changed_beyond_functions_is_not_tried_in_a_fork(collected: Collected) -> None:
    assert collected.try_mutant(NOT_IMPORTABLE) is None


FILE = "src/penstock/of_this_test.py"
SOURCE = """
from functools import cached_property, lru_cache, wraps
def decorated(function):
    @wraps(function)
    def one_more(*arguments):
        return function(*arguments)
    return one_more
LEVEL = 3
class Kept:
    def method(self): return 10
    @property
    def shown(self): return 11
    @cached_property
    def once(self): return 12
    @classmethod
    def of_class(cls): return 13
    @staticmethod
    @decorated
    def static(): return 14
@lru_cache
def cached(): return 15
def outer(number=LEVEL):
    def inner(): return 16
    return inner()
"""


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    made = ModuleType("penstock.of_this_test")
    monkeypatch.setitem(sys.modules, made.__name__, made)
    exec(SOURCE, vars(made))
    return made


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        (10, lambda module: module.Kept().method()),
        (11, lambda module: module.Kept().shown),
        (12, lambda module: module.Kept().once),
        (13, lambda module: module.Kept.of_class()),
        (14, lambda module: module.Kept.static()),
        (15, lambda module: module.cached()),
        (16, lambda module: module.outer()),
    ],
)
def test_a_function_is_changed_where_it_is(module: ModuleType, value: int, seen: Callable[[ModuleType], int]) -> None:
    plant(FILE, SOURCE, SOURCE.replace(str(value), "99"))
    assert seen(module) == 99


@pytest.mark.parametrize(
    ("before", "after"),
    [("LEVEL = 3", "LEVEL = 4"), ("number=LEVEL", "number=7"), ("def outer", "def other"), ("    @property\n", "")],
)
def test_what_is_no_function_is_refused(module: ModuleType, before: str, after: str) -> None:
    with pytest.raises(NotInPlaceError, match="itself is changed"):
        plant(FILE, SOURCE, SOURCE.replace(before, after))


def test_a_module_that_is_not_imported_yet_is_imported_changed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "of_this_test.py").write_text(SOURCE)
    monkeypatch.setattr(penstock, "__path__", [*penstock.__path__, str(tmp_path)])
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(penstock, "of_this_test", None, raising=False)
    plant(FILE, SOURCE, SOURCE.replace("LEVEL = 3", "LEVEL = 4"))
    assert import_module("penstock.of_this_test").LEVEL == 4
    del sys.modules["penstock.of_this_test"]


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
