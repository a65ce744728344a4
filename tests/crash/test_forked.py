"""A program that runs in a fork is like one in a process of its own in all that the tests of this folder look at."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.crash.forked import Forked

TELL = "import os, sys; print(sys.argv[1:], os.getcwd(), os.environ.get('GIVEN'), __name__)"
SEEN = "import os, sys; print('penstock' in sys.modules, os.environ.get('GIVEN')); os.environ['GIVEN'] = 'left'"


def ended(words: list[str], directory: Path, **more: str) -> tuple[int | None, str, str]:
    process = Forked(words, cwd=directory, env=environment(more))
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def environment(more: Mapping[str, str]) -> Mapping[str, str]:
    return {**{name: value for name, value in os.environ.items() if name != "GIVEN"}, **more}


@pytest.mark.parametrize("words", [["-c", TELL], ["-m", "told"], ["told.py"]], ids=lambda words: words[0])
def test_it_sees_what_a_process_of_python_sees(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "told.py").write_text(TELL)
    command = [sys.executable, *words, "a", "b c"]
    given = environment({"GIVEN": "yes"})
    usual = subprocess.run(command, cwd=tmp_path, env=given, capture_output=True, text=True, check=True)
    assert ended([*words, "a", "b c"], tmp_path, GIVEN="yes") == (0, usual.stdout, usual.stderr)


def test_it_imports_the_product_on_its_own_and_leaves_nothing_to_the_next(tmp_path: Path) -> None:
    assert [ended(["-c", SEEN], tmp_path)[:2] for _ in range(2)] == [(0, "False None\n")] * 2


@pytest.mark.parametrize(
    ("program", "code", "said"),
    [
        ("import sys; sys.exit(3)", 3, ""),
        ("import sys; sys.exit('no')", 1, "no\n"),
        ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL, ""),
        ("import atexit; atexit.register(lambda: os.write(2, b'left')); import os", 0, "left"),
    ],
)
def test_its_end_is_told(program: str, code: int, said: str, tmp_path: Path) -> None:
    assert ended(["-c", program], tmp_path) == (code, "", said)


def test_an_error_that_nobody_caught_is_shown(tmp_path: Path) -> None:
    code, _, err = ended(["-c", "1 / 0"], tmp_path)
    assert code == 1
    assert err.splitlines()[-1] == "ZeroDivisionError: division by zero"


def test_it_leads_a_session_of_its_own_and_can_be_killed(tmp_path: Path) -> None:
    with Forked(
        ["-c", "import time; print('here', flush=True); time.sleep(600)"], cwd=tmp_path, env=os.environ, new_session=True
    ) as process:
        assert process.stdout.readline() == "here\n"
        assert process.poll() is None
        assert os.getsid(process.pid) == process.pid
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.01)
        process.kill()
        assert process.wait(60) == process.poll() == -signal.SIGKILL
