"""Real processes that write a journal and are killed at each of its steps: what they had acknowledged is there once."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.journal.inspection import verify_journal
from penstock.journal.reading import JournalReader
from penstock.journal.segment import segment_firsts
from penstock.journal.storage import LocalStorage

UNTIL = 30
STEPS = (
    *("journal.write=kill@9", "journal.write=torn@9", "journal.sync=kill@8", "journal.note=kill@5", "journal.create=kill@3"),
    *("journal.remove=kill@2", "journal.release=kill@2"),
)


def ended(home: Path, faults: str) -> tuple[int, list[int]]:
    """Run the writer to its end; its exit code and the numbers that were acknowledged."""
    command = [sys.executable, "-m", "tests.live.journal_writer", str(home), str(home.with_name("copy")), str(UNTIL)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, env={**os.environ, "PENSTOCK_FAULTS": faults}
    )
    assert done.returncode in {0, -signal.SIGKILL}, done.stderr
    return done.returncode, [int(line) for line in done.stdout.split()]


@pytest.mark.parametrize("faults", STEPS)
def test_a_writer_that_is_killed_loses_nothing_and_doubles_nothing(tmp_path: Path, faults: str) -> None:
    home, storage = tmp_path / "journal", LocalStorage()
    code, acknowledged = ended(home, faults)
    assert code == -signal.SIGKILL
    assert acknowledged == list(range(1, len(acknowledged) + 1))
    code, again = ended(home, "")
    assert (code, again) == (0, list(range(1, UNTIL + 1)))
    extent = JournalReader(storage, home).extent()
    assert extent is not None
    found = [
        each.event.number for each in JournalReader(storage, home).read(extent.first, extent.next, journal_id=extent.journal_id)
    ]
    assert found == list(range(extent.first + 1, UNTIL + 1))
    assert verify_journal(storage, home).ok
    copied = [(home.with_name("copy") / "segments" / f"{first:020d}.log").read_bytes() for first in segment_firsts(storage, home)]
    assert copied == [(home / "segments" / f"{first:020d}.log").read_bytes() for first in segment_firsts(storage, home)]
