"""Every target of the Makefile says in one sentence what it does."""

import re
import subprocess

from tests.architecture.reading import ROOT

TARGETS = {"demo", "test", "check", "style", "bench", "soak", "docs", "screens", "servers", "wheel", "clean", "help"}
LINE = re.compile(r"^([a-z]+):.*?(?:## (.*))?$", re.MULTILINE)


def test_every_target_is_described_by_one_sentence() -> None:
    described = dict(LINE.findall((ROOT / "Makefile").read_text()))
    assert set(described) == TARGETS
    assert [target for target, sentence in described.items() if not re.fullmatch(r"[A-Z][^\n]*\.", sentence)] == []


def test_make_alone_shows_them() -> None:
    shown = subprocess.run(["make", "--no-print-directory"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert {line.split()[1] for line in shown.splitlines()} == TARGETS
