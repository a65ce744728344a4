"""The product with a mutant planted in it, and what the tests say of it.

Most mutants are tried in place: see `tests.mutation.collected`. Where one must be imported anew, it has a tree of its own:
symbolic links to the repository, and directories only on the way to the changed file. Every run is a process of its own, forked
from one that has the libraries only, with that tree first on its path; it refuses to go on if another product is imported.
"""

import os
import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.mutation.interpreter import Interpreter
from tests.mutation.mutant import Mutant
from tests.servers.server import HOME

ROOT = Path(__file__).parents[2]
BOOT = Path(__file__).with_name("boot.py")
LONGEST_S = 360
"""A mutant may make its tests hang."""
LONGEST_UNCHANGED_S = 500
"""Hundreds of tests, which take two minutes alone on the machine."""
SCHEDULES = 2_000
"""So many random schedules must do for the simulator; most mutants break an invariant in the first few."""

NOT_NEEDED = ("hypothesispytest", "anyio", "xdist", "xdist.looponfail")
"""Plugins that take half of the time of a run of one test."""

_VIOLATION = re.compile(r"(?<!\w)I\d+(/I\d+)*: ")
_BROKEN_CODE = re.compile(r"([\w.]*\.)?(Import|ModuleNotFound|Syntax|Indentation|Name|UnboundLocal|Attribute|Type)Error\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a run ended. `failed`: what went wrong in each failed test, in one line. `broken`: what could not even be run.
    `skipped`: why a test was skipped.
    """

    code: int
    output: str
    failed: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()
    skipped: str | None = None

    @property
    def passed(self) -> bool:
        """Whether nothing was found."""
        return self.code == 0 and not self.failed and not self.broken

    @property
    def caught(self) -> bool:
        """Whether behaviour was found wrong, and nothing else: a mutant that does not even run proves nothing."""
        return self.code == 1 and bool(self.failed) and not self.broken


class Copy:
    """The sources and tests as they are now, seen from `directory`. `archive` holds what makes Spark start fast."""

    def __init__(self, directory: Path, *, archive: Path, interpreter: Interpreter, environment: Mapping[str, str]) -> None:
        self._root, self._interpreter, self._environment = directory, interpreter, environment
        for path in ROOT.glob("[!.]*"):
            (directory / path.name).symlink_to(path)
        cache = directory / ".pytest_cache" / "d"
        cache.mkdir(parents=True)
        (cache / "spark").symlink_to(archive, target_is_directory=True)

    def plant(self, mutant: Mutant) -> None:
        """Change the file here alone. Raises AssertionError if the mutant's text is not there exactly once."""
        path = self._root / mutant.file
        text = changed(mutant, path.read_text(encoding="utf-8"))
        compile(text, mutant.file, "exec")
        self._part_from_repository(Path(mutant.file).parent)
        path.unlink()
        path.write_text(text, encoding="utf-8")

    def _part_from_repository(self, folder: Path) -> None:
        """Make each directory down to `folder` one of its own, with links to what the repository's has.

        Directories of compiled code are, too, so that a mutant's never reaches the repository: Python replaces a link there.
        """
        for part in reversed([folder, *folder.parents][:-1]):
            (self._root / part).unlink()
            for own in (part, part / "__pycache__"):
                (self._root / own).mkdir()
                for found in (ROOT / own).glob("*"):
                    if found.name != "__pycache__":
                        (self._root / own / found.name).symlink_to(found)

    def run_tests(self, tests: Sequence[str], *, first_cases: bool = False, longest_s: float = LONGEST_S) -> Outcome:
        """Run pytest until the first failure."""
        report = self._root / "report.xml"
        options = ["-x", "-q", "--no-header", "--tb=short", f"--junitxml={report}"]
        options += [f"-pno:{plugin}" for plugin in NOT_NEEDED]
        options += ["-p", "tests.mutation.first_cases"] if first_cases else []
        code, output = self._run("pytest", *options, *tests, longest_s=longest_s)
        if not report.exists():
            return Outcome(code=code, output=output, broken=("pytest made no report",))
        told = ET.parse(report).getroot()  # our own file
        messages = [found.get("message", "") for found in told.iter("failure")]
        return Outcome(
            code=code,
            output=output,
            failed=tuple(message for message in messages if not is_broken(message)),
            broken=(
                *(message for message in messages if is_broken(message)),
                *(found.get("message", "") for found in told.iter("error")),
            ),
            skipped=next((found.get("message", "") for found in told.iter("skipped")), None),
        )

    def simulate(self) -> Outcome:
        """Run random schedules of the simulator until the first violation."""
        return simulated(*self._run("penstock.testing.simulator", "--schedules", str(SCHEDULES)))

    def _run(self, module: str, *arguments: str, longest_s: float = LONGEST_S) -> tuple[int, str]:
        package, output = self._root / "src" / "penstock", self._root / "output.txt"
        env = {**self._environment, "PYTHONPATH": str(self._root / "src")}
        code = self._interpreter.run(
            BOOT, str(package), module, *arguments, cwd=self._root, env=env, output=output, longest_s=longest_s
        )
        ended = "" if code >= 0 else f"\nended by signal {-code}, or within {longest_s} s not at all"
        return code, output.read_text(encoding="utf-8", errors="replace") + ended


def is_broken(message: str) -> bool:
    """Whether a test that failed so says that the code does not even run."""
    return _BROKEN_CODE.match(message) is not None


def simulated(code: int, output: str) -> Outcome:
    """What the simulator found, that ended with that exit code and printed `output`."""
    found = _VIOLATION.search(output)
    told = tuple(line for line in output.splitlines() if _VIOLATION.search(line))
    broken = () if code == 0 or (found and "Replay: " in output) else ("the simulator found no violation, yet it failed",)
    return Outcome(code=code, output=output, failed=told[:1], broken=broken)


def changed(mutant: Mutant, text: str) -> str:
    """`text` with the mutant planted. Raises AssertionError if its own text is not there exactly once."""
    found = text.count(mutant.find)
    assert found == 1, (
        f"the mutant no longer applies: {mutant.file} holds its text {found} times; plant it where its guarantee lives now"
    )
    assert mutant.find != mutant.replace
    return text.replace(mutant.find, mutant.replace)


def environment() -> dict[str, str]:
    """Return what the copies' tests see of this process's environment.

    To be called by the thread that runs tests: pytest sets a variable of its own in it at every step, and a copy that is made
    meanwhile in another thread fails.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "PENSTOCK_"))}
    return {**kept, "PENSTOCK_SERVERS": str(HOME)}
