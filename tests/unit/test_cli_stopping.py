import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli.opening import SparkLog
from penstock.cli.run import StopSignals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_for_a_stop(number: signal.Signals) -> None:
    told: list[str] = []
    before = signal.getsignal(number)
    with StopSignals(lambda: told.append("stopping")) as stop:
        assert not stop.wanted
        signal.raise_signal(number)
        assert (stop.wanted, told) == (True, ["stopping"])
    assert signal.getsignal(number) is before


def test_the_second_signal_ends_the_process_at_once() -> None:
    script = """
import signal
from penstock.cli.run import StopSignals
with StopSignals(lambda: print("stopping", flush=True)):
    signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGINT)
    print("still here")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "stopping\n", "")


def run_with_log(home: Path) -> "subprocess.CompletedProcess[str]":
    script = """
import os, sys
from penstock.cli.opening import SparkLog
with SparkLog(sys.argv[1]) as log:
    os.system("echo of the JVM >&2")
    print(log.location())
print("of Python", file=sys.stderr)
"""
    return subprocess.run([sys.executable, "-c", script, str(home)], capture_output=True, text=True, check=True)


def test_what_the_jvm_says_goes_into_a_file(tmp_path: Path) -> None:
    home = tmp_path / "state"
    done = run_with_log(home)
    assert (done.stdout, done.stderr) == (f"{home}/spark.log\n", "of Python\n")
    assert (home / "spark.log").read_text() == "of the JVM\n"
    (home / "spark.log").write_text("before")
    run_with_log(home)
    assert (home / "spark.log.1").read_text() == "before"
    assert (home / "spark.log").read_text() == "of the JVM\n"


def test_a_home_that_cannot_be_written_leaves_everything_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run_with_log(tmp_path / "file" / "state")
    assert (done.stdout, done.stderr) == ("None\n", "of the JVM\nof Python\n")


def test_nothing_was_said(tmp_path: Path) -> None:
    with SparkLog(str(tmp_path)) as log:
        assert log.location() is None
