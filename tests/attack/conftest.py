"""Directories in memory, as in `tests/conformance`. The rig runs whole: nothing of it is drawn."""

import pytest
from tests.memory import tmp_path

__all__ = ["tmp_path"]


@pytest.fixture(autouse=True)
def _ledgers_are_proved_briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start has writers race for its ledger: twenty times, which takes longer than the rest of it. Others test that."""
    monkeypatch.setattr("penstock.ledger.self_test.ROUNDS", 2)
