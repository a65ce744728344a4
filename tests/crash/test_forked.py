"""A program that runs in a fork is like one in a process of its own in all that the tests of this folder look at."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import penstock
from tests.crash.awaited import ended as awaited
from tests.crash.forked import Forked
from tests.crash.killing import await_gone

ROOT = Path(__file__).parents[2]

TELL = """
import os, signal, sys, threading
print(sys.argv[1:], sys.path, os.getcwd(), os.environ.get("GIVEN"), __name__, threading.active_count(), sys.stdout)
print(sys.stdout.line_buffering, sys.stderr.line_buffering, sys.stdin.read(), sorted(map(int, os.listdir("/proc/self/fd")))[:3])
print([signal.getsignal(number) for number in (signal.SIGINT, signal.SIGCHLD, signal.SIGTERM, signal.SIGPIPE)])
print(signal.pthread_sigmask(signal.SIG_BLOCK, []), [name for name in sys.modules if name.startswith("tests")])
print(os.getsid(0) - int(os.environ["SESSION"]), os.getpgid(0) - int(os.environ["GROUP"]), threading.current_thread().name)
"""
SEEN = """
import os, penstock
print(penstock.__file__, hasattr(penstock, "left"), os.environ.get("GIVEN"))
penstock.left = os.environ["GIVEN"] = "left"
"""


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
    more = {"GIVEN": "yes", "SESSION": str(os.getsid(0)), "GROUP": str(os.getpgid(0)), "PYTHONPATH": f"{tmp_path / 'more'}"}
    usual = subprocess.run(
        command, cwd=tmp_path, env=environment(more), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
    )
    assert ended([*words, "a", "b c"], tmp_path, **more) == (0, usual.stdout, usual.stderr)


def test_it_leaves_nothing_to_the_next(tmp_path: Path) -> None:
    assert [ended(["-c", SEEN], tmp_path) for _ in range(2)] == [(0, f"{penstock.__file__} False None\n", "")] * 2


def test_the_product_is_the_one_that_its_path_names(tmp_path: Path) -> None:
    other = tmp_path / "other" / "penstock"
    other.mkdir(parents=True)
    (other / "__init__.py").touch()
    program = "import sys, penstock; print(penstock.__file__, [name for name in sys.modules if name.startswith('penstock.')])"
    assert ended(["-c", program], tmp_path, PYTHONPATH=str(other.parent)) == (0, f"{other / '__init__.py'} []\n", "")


def test_a_fault_of_its_environment_is_armed(tmp_path: Path) -> None:
    program = "from penstock.core.faults import armed; print([fault.point for fault in armed()])"
    assert ended(["-c", program], tmp_path, PENSTOCK_FAULTS="rename.move=kill@2") == (0, "['rename.move']\n", "")


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


def test_what_it_did_not_write_out_is_lost_when_it_is_killed(tmp_path: Path) -> None:
    program = "import os; print('kept', flush=True); print('lost'); os.kill(os.getpid(), 9)"
    usual = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=False)
    assert ended(["-c", program], tmp_path) == (-signal.SIGKILL, usual.stdout, "")


def test_what_python_reads_as_it_starts_cannot_be_another(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="Python reads"):
        Forked(["-c", ""], cwd=tmp_path, env={**os.environ, "PYTHONHASHSEED": "5"})


def test_it_leads_a_session_of_its_own_and_can_be_killed(tmp_path: Path) -> None:
    with Forked(sleeps(), cwd=tmp_path, env=os.environ, new_session=True) as process:
        assert os.getsid(process.pid) == process.pid
        assert process.stdout.readline() == "here\n"
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.communicate(timeout=0.01)
        process.kill()
        assert process.communicate(timeout=60) == ("", "")
        assert process.wait(60) == process.poll() == -signal.SIGKILL


def test_until_its_end_is_known_its_number_is_nobody_elses_and_then_nothing_of_it_is_left(tmp_path: Path) -> None:
    with Forked(["-c", ""], cwd=tmp_path, env=os.environ) as process:
        keeper = parent_of(process.pid)
        assert process.stdout.read() == ""  # so it ended
        process.kill()
        assert process.wait(60) in {0, -signal.SIGKILL}
    await_gone(process.pid)
    await_gone(keeper)


def test_threads_of_a_test_may_start_some_at_the_same_time(tmp_path: Path) -> None:
    lock = threading.Lock()
    with lock, ThreadPoolExecutor(4) as threads:
        told = list(threads.map(lambda number: ended(["-c", f"print({number})"], tmp_path), range(8)))
    assert told == [(0, f"{number}\n", "") for number in range(8)]


@pytest.mark.parametrize("new_session", [True, False])
def test_it_is_killed_when_the_tests_process_is(tmp_path: Path, *, new_session: bool) -> None:
    """With what it started, where it leads a session."""
    started = sleeps("import subprocess; beside = subprocess.Popen(['sleep', '600']); print(beside.pid, flush=True)")
    tests = f"""
import os, sys
from pathlib import Path
from tests.crash.awaited import ended as awaited
from tests.crash.forked import Forked
from tests.crash.killing import await_gone
process = Forked({started!r}, cwd=Path({str(tmp_path)!r}), env=os.environ, new_session={new_session})
print(process.pid, process.stdout.readline(), os.getpid(), end="", flush=True)
os.kill(os.getpid(), 9)
"""
    done = subprocess.run([sys.executable, "-c", tests], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == -signal.SIGKILL
    program, beside, _ = map(int, done.stdout.split())
    await_gone(program)
    if new_session:
        await_gone(beside)
    else:
        os.kill(beside, signal.SIGKILL)


def sleeps(before: str = "") -> list[str]:
    return ["-c", f"{before}\nimport time; print('here', flush=True); time.sleep(600)"]


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def test_one_that_hangs_says_where(tmp_path: Path) -> None:
    program = "import pathlib, time\ndef hangs():\n    time.sleep(600)\npathlib.Path('there').touch()\nhangs()"
    process = Forked(["-c", program], cwd=tmp_path, env=environment({}), new_session=True)
    while not (tmp_path / "there").exists():
        threading.Event().wait(0.01)
    with pytest.raises(AssertionError, match=r"(?s)did not end in 0 s:.*line 3 in hangs.*The shared Java process:\n"):
        awaited(process, within_s=0.01)
