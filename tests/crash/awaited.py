"""A process that is awaited: one that hangs is asked what it is doing before it is killed, since nobody sees it hang again."""

import os
import signal
import subprocess
from contextlib import suppress

from tests.crash import shared_java

ENDS_WITHIN_S = 300.0
_WRITES_WITHIN_S = 2.0


def ended(process: "subprocess.Popen[str]", *, within_s: float = ENDS_WITHIN_S) -> tuple[str, str]:
    """Its standard output and error, once it has ended. Killed with its session if it takes longer, which fails the test."""
    try:
        return process.communicate(timeout=within_s)
    except subprocess.TimeoutExpired:
        os.kill(process.pid, signal.SIGUSR2)  # tests/crash/forked.py has it write its stacks; another one ends
        with suppress(subprocess.TimeoutExpired):
            process.wait(_WRITES_WITHIN_S)
        java = shared_java.stacks()
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate(timeout=ENDS_WITHIN_S)
    raise AssertionError(f"{process.args} did not end in {within_s:.0f} s:\n{out}{err}\nThe shared Java process:\n{java}")
