"""Commands as forks of a process that has imported the product: what is killed is the act itself, and that costs little.

A moment is a time on the processor, not one of a clock: on a busy machine most of those would pass before the act begins.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.cli.app import main
from penstock.core import faults
from penstock.run.fault_points import import_all


@dataclass(frozen=True)
class Undisturbed:
    """A command that ended by itself: processor seconds until its first fault point and in all, how often it reached each."""

    first_s: float
    all_s: float
    reached: Mapping[str, int]


class Actor:
    """Runs commands in `directory`, one at a time; beside it is what they print."""

    def __init__(self, server: "subprocess.Popen[bytes]") -> None:
        self._server = server

    def run(
        self, words: Sequence[str], *, directory: Path, environment: Mapping[str, str], killed_after_s: float | None = None
    ) -> int:
        """Return the exit code. `killed_after_s`: seconds on the processor after which the kernel ends the process."""
        request = {"words": list(words), "directory": str(directory), "environment": dict(environment), "after_s": killed_after_s}
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps(request).encode() + b"\n")
        answer = self._server.stdout.readline()
        assert answer, "the process that forks is gone"
        return int(answer)


def printed(directory: Path) -> str:
    return directory.with_name("output.txt").read_text()


def undisturbed(directory: Path) -> Undisturbed:
    """What the last command that was not killed did."""
    return Undisturbed(**json.loads(directory.with_name("reached.json").read_text()))


def is_killed(code: int) -> bool:
    """By a fault, or at the moment that was asked for."""
    return code in {-signal.SIGKILL, -signal.SIGPROF}


@contextmanager
def acting() -> Iterator[Actor]:
    """The process that forks, for as long as it is needed."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-m", __name__], stdin=pipe, stdout=pipe, bufsize=0) as server:
        yield Actor(server)
        assert server.stdin is not None
        server.stdin.close()


def serve() -> None:
    """Fork for each line of standard input, and print the exit code."""
    import_all()
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            _act(**request)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def _act(*, words: Sequence[str], directory: str, environment: Mapping[str, str], after_s: float | None) -> None:
    file = os.open(Path(directory).with_name("output.txt"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for number in (1, 2):
        os.dup2(file, number)
    os.chdir(directory)
    os.environ.update(environment)
    faults.arm(environment.get(faults.VARIABLE, ""))
    first_s, counts, around = [], Counter[str](), faults.FaultPoint.around

    def counted(point: faults.FaultPoint, **errors: Any) -> Any:
        first_s.append(time.process_time())
        counts[point.name] += 1
        return around(point, **errors)

    faults.FaultPoint.around = counted  # type: ignore[method-assign]
    if after_s is not None:
        signal.setitimer(signal.ITIMER_PROF, max(after_s, 0.001))  # nothing handles its signal: as SIGKILL, nothing runs any more
    code = 0
    try:
        main(words)
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else 1
    sys.stdout.flush()
    done = {"first_s": first_s[0] if first_s else 0, "all_s": time.process_time(), "reached": counts}
    Path(directory).with_name("reached.json").write_text(json.dumps(done))
    os._exit(code)


if __name__ == "__main__":
    serve()
