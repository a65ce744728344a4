"""What killed test runs leave in memory is removed by the next run, and what a run still holds is not."""

from pathlib import Path

import pytest
from tests import memory


def test_only_what_nobody_holds_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_UNLOCKED_S", -1.0)
    left = tmp_path / "penstock-held-kafka-left"
    (left / "data").mkdir(parents=True)
    (tmp_path / "somebody-else's").mkdir()
    with memory.held_directory("kafka-", parent=tmp_path) as held:
        memory.remove_left_directories(tmp_path)
        assert {*tmp_path.iterdir()} == {held, tmp_path / "somebody-else's"}


def test_what_may_be_about_to_be_held_is_kept(tmp_path: Path) -> None:
    (tmp_path / "penstock-held-new").mkdir()
    memory.remove_left_directories(tmp_path)
    assert (tmp_path / "penstock-held-new").exists()
