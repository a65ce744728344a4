"""A Python that has imported what every test imports, and runs each of many programs in a fork of itself.

The libraries take most of the time of a program that runs one test; the product and the tests are imported in the fork. It reads
a request a line from standard input, and answers each with a line: the program's exit code.
"""

import json
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

LIBRARIES = (
    *("pytest", "unittest.mock", "numpy", "pandas", "pyarrow.compute", "pyarrow.dataset", "pyarrow.parquet", "pyspark.sql"),
    *("pydantic", "typer", "rich.console", "ruamel.yaml", "tenacity", "confluent_kafka", "psycopg", "pymysql"),
    "pyiceberg.catalog.sql",
)
"""None of those that bring a plugin for pytest, which it imports in its own way, nor deltalake and DuckDB: they start threads."""


class Interpreter:
    """One such Python; runs one program at a time."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )

    def run(self, program: Path, *arguments: str, cwd: Path, env: dict[str, str], output: Path, longest_s: float) -> int:
        """Run the file `program` with `env` as its environment; both its outputs go to the file `output`.

        Returns the exit code, or the negative number of the signal that ended it: SIGKILL after `longest_s`, with all that it
        started.
        """
        request = {"program": str(program), "arguments": arguments, "cwd": str(cwd), "env": env, "output": str(output)}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({**request, "longest_s": longest_s}) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate()


def _serve() -> None:
    for library in LIBRARIES:
        import_module(library)
    sys.path.remove(str(Path(__file__).parent))
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    for line in sys.stdin:
        request = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _become(request)
        sys.stdout.write(f"{wait_for(pid, longest_s=request['longest_s'])}\n")
        sys.stdout.flush()


def wait_for(pid: int, *, longest_s: float) -> int:
    """Wait for a fork that leads a session, kill what it started, and return its exit code, as `Interpreter.run` does.

    SIGCHLD must be blocked.
    """
    if signal.sigtimedwait({signal.SIGCHLD}, longest_s) is None:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    with suppress(ProcessLookupError):  # of what it started, all should be gone
        os.killpg(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(status)


def _become(request: dict[str, Any]) -> None:
    """Run the program in this process, which ends with it."""
    os.setsid()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    redirect(request["output"])
    sys.argv = [request["program"], *request["arguments"]]
    sys.path[:0] = ["", *_paths(request["env"])]
    code: Any = 1
    try:
        runpy.run_path(request["program"], run_name="__main__")
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        if isinstance(ended.code, str):
            print(ended.code)
    except BaseException:  # noqa: BLE001 - as Python itself does
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
    finally:
        end_process(code)


def end_process(code: int) -> NoReturn:
    """End a fork, with what it wrote, and without what its parent would do at its end."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def redirect(output: str) -> None:
    """Have this process read nothing, and write both its outputs to that file."""
    nothing, file = os.open(os.devnull, os.O_RDONLY), os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for number, opened in ((0, nothing), (1, file), (2, file)):
        os.dup2(opened, number)


def _paths(env: dict[str, str]) -> Sequence[str]:
    return [path for path in env.get("PYTHONPATH", "").split(os.pathsep) if path]


if __name__ == "__main__":
    _serve()
