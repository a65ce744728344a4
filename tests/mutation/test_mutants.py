"""A suite that cannot fail proves nothing: every published bug, planted in a copy of our code, is caught by the suite.

CI tries those of the core and an eighth of the others of each bug, fewer of those that need servers of their own, and all of them
with PENSTOCK_SOAK_FAULTS=all; PENSTOCK_SEED replays a slice.
"""

import os
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from queue import Queue
from tempfile import TemporaryDirectory

import pytest

from tests.mutation.collected import IN_PROCESS, Collected
from tests.mutation.conftest import COLLECTED
from tests.mutation.interpreter import Interpreter
from tests.mutation.mutant import BUGS, Mutant
from tests.mutation.mutants import MUTANTS
from tests.mutation.planted import LONGEST_UNCHANGED_S, ROOT, SCHEDULES, Copy, Outcome, changed, environment
from tests.seed import SEED

pytestmark = [pytest.mark.mutation, pytest.mark.campaign]

EVERYTHING = os.environ.get("PENSTOCK_SOAK_FAULTS") == "all"

Outcomes = Mapping[str, "Future[Outcome]"]

UNCHANGED_CHEAP, UNCHANGED_DEAR = "tests of the unchanged product", "tests of the unchanged copy"
UNCHANGED_SIMULATOR = "simulator of the unchanged product"
SCHEDULES_UNCHANGED = 200


CORE = ("src/penstock/core/", "src/penstock/commit/")


def drawn(seed: int) -> list[Mutant]:
    """Those of the core, and of each bug's others one at least, in their order."""
    chosen = {str(mutant) for mutant in MUTANTS if mutant.file.startswith(CORE)}
    generator = random.Random(seed)
    for bug in BUGS:
        others = [mutant for mutant in MUTANTS if mutant.bug == bug and str(mutant) not in chosen]
        cheap = [mutant for mutant in others if all(test.startswith("tests/unit") for test in mutant.tests)]
        dear = [mutant for mutant in others if mutant not in cheap]
        some = generator.sample(cheap, -(-len(cheap) // 8))
        some += generator.sample(dear, max(len(dear) // 16, bool(dear and not some)))
        chosen.update(map(str, some))
    return [mutant for mutant in MUTANTS if str(mutant) in chosen]


CHOSEN = MUTANTS if EVERYTHING else drawn(SEED)


def is_cheap(mutant: Mutant) -> bool:
    """Whether its tests need no server; the simulator does not."""
    return all(test.startswith(IN_PROCESS) for test in mutant.tests)


class Trials:
    """Runs mutants, a few at once: in forks of one Python that has collected the tests of cheap ones, or from a copy."""

    def __init__(self, archive: Path, asked: Sequence[Mutant], *, directory: Path) -> None:
        self._archive, self._environment = archive, environment()
        self._cheap, self._dear = (
            sorted({test for mutant in asked if is_cheap(mutant) is cheap for test in mutant.tests}) for cheap in (True, False)
        )
        files = sorted({test.partition("::")[0] for test in self._cheap})
        self._collected = Collected(files, environment=self._environment, directory=directory)
        self._interpreters = Queue[Interpreter]()
        for _ in range(os.cpu_count() or 1):
            self._interpreters.put(Interpreter())

    def try_mutant(self, mutant: Mutant) -> Outcome:
        """From a copy, too, if a fork does not catch it: there processes import the product anew."""
        outcome = self._collected.try_mutant(mutant) if is_cheap(mutant) else None
        if outcome is not None and outcome.caught:
            return outcome
        with self._copy() as copy:
            copy.plant(mutant)
            return copy.run_tests(mutant.tests) if mutant.tests else copy.simulate()

    def try_cheap_tests(self) -> Outcome:
        """One case of each test that is to catch a mutant, without one: the others run everywhere else, if not in such a fork.

        In CI of one test of each file: what a fork lacks, it lacks for all of them.
        """
        return self._collected.try_tests(_some(self._cheap), longest_s=LONGEST_UNCHANGED_S)

    def try_dear_tests(self) -> Outcome:
        """In the same way what is tried from a copy, and what a fork might not catch. In CI of one test of each layer."""
        with self._copy() as copy:
            tests = [*self._dear, *self._cheap] if EVERYTHING else sorted(_by_folder([*self._dear, *self._cheap]).values())
            return copy.run_tests(tests, first_cases=True, longest_s=LONGEST_UNCHANGED_S)

    def try_simulator(self) -> Outcome:
        """In CI a few schedules: the same ones, and more, run in `tests/simulation`."""
        schedules = SCHEDULES if EVERYTHING else SCHEDULES_UNCHANGED
        return self._collected.try_simulator(schedules=schedules, longest_s=LONGEST_UNCHANGED_S)

    @contextmanager
    def _copy(self) -> Iterator[Copy]:
        interpreter = self._interpreters.get()
        try:
            with TemporaryDirectory(prefix="penstock-mutant-") as directory:
                yield Copy(Path(directory), archive=self._archive, interpreter=interpreter, environment=self._environment)
        finally:
            self._interpreters.put(interpreter)

    def close(self) -> None:
        self._collected.close()
        while not self._interpreters.empty():
            self._interpreters.get().close()


def _some(tests: Sequence[str]) -> Sequence[str]:
    """All, or one of each file."""
    return list(tests) if EVERYTHING else sorted({test.partition("::")[0]: test for test in tests}.values())


def _by_folder(tests: Sequence[str]) -> Mapping[str, str]:
    return {test.partition("::")[0].rpartition("/")[0]: test for test in tests}


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outcomes]:
    """Everything that was asked for, tried side by side from the start; each test waits for its own."""
    print(f"PENSTOCK_SEED={SEED}")
    names = Counter(item.name for item in request.session.items if item.module is request.module)
    asked = [mutant for mutant in CHOSEN if names[f"{test_the_suite_catches.__name__}[{mutant}]"]]
    unchanged = names[test_without_a_mutant_the_same_tests_pass.__name__] > 0
    archive, directory = request.config.cache.mkdir("spark"), tmp_path_factory.mktemp("collected")
    with closing(Trials(archive, CHOSEN if unchanged else asked, directory=directory)) as trials:
        pool = ThreadPoolExecutor(os.cpu_count())
        running: dict[str, Future[Outcome]] = {}
        if unchanged:  # first, since nothing takes longer
            running[UNCHANGED_DEAR] = pool.submit(trials.try_dear_tests)
            running[UNCHANGED_CHEAP] = pool.submit(trials.try_cheap_tests)
            running[UNCHANGED_SIMULATOR] = pool.submit(trials.try_simulator)
        running.update({str(mutant): pool.submit(trials.try_mutant, mutant) for mutant in asked})
        yield running
        pool.shutdown(cancel_futures=True)


def test_each_bug_is_planted() -> None:
    planted = Counter(mutant.bug for mutant in MUTANTS)
    assert [number for number in BUGS if not planted[number]] == []
    assert [number for number in planted if number not in BUGS] == []
    assert Counter(str(mutant) for mutant in MUTANTS).most_common(1)[0][1] == 1


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_a_mutant_applies(mutant: Mutant) -> None:
    """In milliseconds, so that whoever changes a line sees at once that a mutant lived in it."""
    changed(mutant, (ROOT / mutant.file).read_text(encoding="utf-8"))
    files = {test.partition("::")[0] for test in mutant.tests}
    assert sorted(file for file in files if not (ROOT / file).exists()) == []


def test_what_is_to_catch_a_mutant_exists(request: pytest.FixtureRequest) -> None:
    """In a run of everything: a case that got another name would be missed only when its mutant is drawn."""
    if any("::" in argument for argument in request.config.args):
        return
    collected = request.config.stash[COLLECTED]
    files = {name.partition("::")[0] for name in collected}
    named = collected | files | {name.partition("[")[0] for name in collected}
    wanted = {test for mutant in MUTANTS for test in mutant.tests if test.partition("::")[0] in files}
    assert sorted(wanted - named) == []


@pytest.mark.parametrize("mutant", CHOSEN, ids=str)
def test_the_suite_catches(mutant: Mutant, outcomes: Outcomes) -> None:
    outcome = outcomes[str(mutant)].result()
    told = f"{BUGS[mutant.bug]}\n{mutant.file}\n{outcome.output}"
    if outcome.passed and outcome.skipped is not None:
        pytest.skip(outcome.skipped)
    assert not outcome.passed, f"the mutant survived, the suite has a hole: {told}"
    assert outcome.caught, f"caught by something else than behaviour, {outcome.broken or outcome.code}: {told}"
    print(f"{BUGS[mutant.bug]}: {outcome.failed[0].splitlines()[0][:200]}")


def test_without_a_mutant_the_same_tests_pass(outcomes: Outcomes) -> None:
    for name in (UNCHANGED_CHEAP, UNCHANGED_DEAR, UNCHANGED_SIMULATOR):
        outcome = outcomes[name].result()
        assert outcome.passed, f"{name}: {outcome.output}"
