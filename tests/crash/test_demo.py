"""The demo as a newcomer runs it, in a folder of its own: killed on purpose, recovered, and exact."""

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
