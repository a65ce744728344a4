"""A Python that has imported the product and collected tests of it: each mutant is planted, and its tests run, in a fork of it.

So a mutant costs its tests alone. What needs more than a fork can give, such as processes that import the changed product, is
left to `tests.mutation.planted.Copy`.
"""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.mutation.in_place import NotInPlaceError, plant
from tests.mutation.interpreter import end_process, redirect, wait_for
from tests.mutation.mutant import Mutant
from tests.mutation.planted import LONGEST_S, NOT_NEEDED, ROOT, SCHEDULES, Outcome, changed, is_broken, simulated

_OPTIONS = (
    "-q",
    "--no-header",
    "--capture=no",
    "--tb=short",
    "-p",
    "no:cacheprovider",
    *(f"-pno:{plugin}" for plugin in NOT_NEEDED),
)
_NOT_IN_PLACE = 70
"""Exit code of a fork that cannot plant its mutant."""

_TIMED_OUT = re.compile(r"\bTimeout \(?>")
"""A fork may hang for want of a thread that its parent has; a process of its own tells whether it is the mutant."""

IN_PROCESS = "tests/unit/"
"""Tests that may run in a fork of a process with threads, servers and clients of nobody."""


class Collected:
    """One such Python. Threads may share it; it runs one mutant at a time."""

    def __init__(self, files: Sequence[str], *, environment: Mapping[str, str], directory: Path) -> None:
        self._directory, self._busy = directory, threading.Lock()
        paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        with (directory / "collected.txt").open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, __file__, *_OPTIONS, *files],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
                cwd=ROOT,
                env={**environment, "PYTHONPATH": paths},
                start_new_session=True,
            )

    def try_mutant(self, mutant: Mutant) -> Outcome | None:
        """None if it takes a process that imports the product anew."""
        text = (ROOT / mutant.file).read_text(encoding="utf-8")
        return self._ask({"file": mutant.file, "before": text, "after": changed(mutant, text), "tests": mutant.tests})

    def try_tests(self, tests: Sequence[str], *, longest_s: float) -> Outcome:
        """Without a mutant, the first case of each."""
        return self._ask_unchanged({"tests": tests, "first_cases": True}, longest_s=longest_s)

    def try_simulator(self, *, schedules: int, longest_s: float) -> Outcome:
        """Without a mutant."""
        return self._ask_unchanged({"tests": (), "schedules": schedules}, longest_s=longest_s)

    def _ask_unchanged(self, request: Mapping[str, object], *, longest_s: float) -> Outcome:
        outcome = self._ask(request, longest_s=longest_s)
        assert outcome is not None
        return outcome

    def _ask(self, request: Mapping[str, object], *, longest_s: float = LONGEST_S) -> Outcome | None:
        output, report = self._directory / "output.txt", self._directory / "report.json"
        asked = {**request, "output": str(output), "report": str(report), "longest_s": longest_s}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._busy:
            report.unlink(missing_ok=True)
            self._process.stdin.write(json.dumps(asked) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
            assert answer, (self._directory / "collected.txt").read_text(errors="replace")
            code, said = int(answer), output.read_text(encoding="utf-8", errors="replace")
            told = json.loads(report.read_text(encoding="utf-8")) if report.exists() else {"broken": ["the fork made no report"]}
        if code == _NOT_IN_PLACE:
            return None
        if not request["tests"]:
            return simulated(code, said)
        return Outcome(code=code, output=said, **{name: tuple(messages) for name, messages in told.items()})

    def close(self) -> None:
        self._process.communicate()


class _Server:
    """A plugin that answers requests, a line each, with exit codes, in place of running once all that was collected."""

    def __init__(self, answers: int) -> None:
        self._answers = answers

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        for line in sys.stdin:
            request = json.loads(line)
            pid = os.fork()
            if pid == 0:
                _become(session, request)
            os.write(self._answers, b"%d\n" % wait_for(pid, longest_s=request["longest_s"]))
        return True


def _become(session: pytest.Session, request: Mapping[str, Any]) -> NoReturn:
    """Plant the request's mutant, run its tests, and end with their exit code."""
    code = 1
    try:
        os.setsid()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        redirect(request["output"])
        if "file" in request:
            plant(request["file"], request["before"], request["after"])
        code = _run(session, request) if request["tests"] else _simulate(request.get("schedules", SCHEDULES))
    except NotInPlaceError:
        code = _NOT_IN_PLACE
    except BaseException:  # noqa: BLE001 - as Python itself does
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
    finally:
        end_process(code)


def _simulate(schedules: int) -> int:
    from penstock.testing.simulator.command import main

    return main(["--schedules", str(schedules)])


def _run(session: pytest.Session, request: Mapping[str, Any]) -> int:
    """Run tests until the first one fails, and write down what went wrong."""
    reports = Reports()
    session.config.pluginmanager.register(reports)
    items = list(_asked(session.items, request["tests"], first_cases=request.get("first_cases", False)))
    for item, nextitem in zip(items, [*items[1:], None], strict=True):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=nextitem)
        if reports.failed or reports.broken:
            break
    if not items:
        reports.broken.append(f"none of {request['tests']} was collected")
    told = {"failed": reports.failed, "broken": reports.broken, "skipped": next(iter(reports.skipped), None)}
    Path(request["report"]).write_text(json.dumps({name: messages for name, messages in told.items() if messages}), "utf-8")
    return int(bool(reports.failed or reports.broken))


def _asked(items: Sequence[pytest.Item], tests: Sequence[str], *, first_cases: bool) -> Iterator[pytest.Item]:
    seen = set[str]()
    for item in items:
        test = item.nodeid.partition("[")[0]
        named = {item.nodeid, test, item.nodeid.partition("::")[0], test.rpartition("::")[0]}
        if named & set(tests) and not (first_cases and test in seen):
            seen.add(test)
            yield item


class Reports:
    """What went wrong in tests, in a line each: `failed` where a test found it, `broken` where something did not even run."""

    def __init__(self) -> None:
        self.failed, self.broken, self.skipped = list[str](), list[str](), list[str]()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped:
            self.skipped.append(str(report.longrepr))
        if not report.failed:
            return
        print(report.longreprtext)
        crash = getattr(report.longrepr, "reprcrash", None)
        message = str(report.longrepr if crash is None else crash.message)
        told = report.when == "call" and not is_broken(message) and not _TIMED_OUT.search(message)
        (self.failed if told else self.broken).append(message)


def _serve() -> None:
    answers = os.dup(1)
    os.dup2(2, 1)
    sys.exit(pytest.main(sys.argv[1:], plugins=[_Server(answers)]))


if __name__ == "__main__":
    sys.path.remove(str(Path(__file__).parent))
    _serve()
