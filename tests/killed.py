"""SIGKILL in a test that survives it: a fault of kind `kill` raises what nothing of Penstock catches."""

from collections.abc import Callable, Iterator

import pytest

from penstock.core import faults


class KilledError(BaseException):
    """Stands for a SIGKILL: nothing of Penstock catches it."""


@pytest.fixture
def kills_raise(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kills raise KilledError; no fault is armed afterwards."""

    def killed() -> None:
        raise KilledError

    monkeypatch.setattr(faults, "_kill", killed)
    yield
    faults.arm("")


def is_killed_by(fault: str, act: Callable[[], object]) -> bool:
    """Return whether `act` reaches `fault`, and dies of it. No fault is armed afterwards."""
    faults.arm(fault)
    try:
        act()
    except KilledError:
        return True
    finally:
        faults.arm("")
    return False
