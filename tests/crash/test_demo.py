"""The demo as a newcomer runs it, in a folder of its own: killed on purpose, recovered, and exact."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.reading import ROOT


@pytest.mark.timeout(900)
def test_the_demo_is_killed_recovers_and_is_exact(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "demo", tmp_path / "demo", ignore=shutil.ignore_patterns("work", "__pycache__"))
    done = subprocess.run([sys.executable, "demo"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\nKilled.\n" in done.stdout
    assert "decided by the killed run, published now" in done.stdout
    assert "Exactly once." in done.stdout
    assert not list((tmp_path / "demo" / "work" / "lake" / ".penstock-staging").rglob("*.staged"))


@pytest.mark.timeout(900)
def test_the_second_act_kills_receiver_and_driver_and_is_exact(tmp_path: Path) -> None:
    """Its short form: some of the flights."""
    shutil.copytree(ROOT / "demo", tmp_path / "demo", ignore=shutil.ignore_patterns("work", "__pycache__"))
    command = [sys.executable, "demo", "push", "--flights", "12000"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.findall(r"^  (\w+) +killed \(SIGKILL\)", done.stdout, re.MULTILINE).count("receiver") == 2
    assert re.findall(r"^  (\w+) +killed \(SIGKILL\)", done.stdout, re.MULTILINE).count("driver") == 1
    assert "The clients got an answer for 12,000 flights." in done.stdout
    assert "Exactly once." in done.stdout
