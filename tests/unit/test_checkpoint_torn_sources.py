"""Entries of the logs of sources that were never written whole."""

from pathlib import Path

import pytest

from penstock.checkpoint.files import LocalFiles
from penstock.checkpoint.source_log import torn_sources

ENTRY = 'v1\n{"path":"file:///in/1.csv","timestamp":1,"batchId":4}'


def told(root: Path, planned: str | None) -> list[tuple[str, str]]:
    found = torn_sources(LocalFiles(root), {"0": planned})
    return [(anomaly.place, anomaly.remedy) for anomaly in found]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    folder = tmp_path / "sources" / "0"
    folder.mkdir(parents=True)
    for name in ("3", "4.compact", "5", "6"):
        (folder / name).write_text(ENTRY)
    (folder / ".5.crc").touch()
    (folder / ".6.0a.tmp").touch()
    (tmp_path / "sources" / "stray").touch()
    return folder


@pytest.mark.parametrize("text", [ENTRY, "v1", '\x00v1\n{"topic":{"0":1}}', "v1\n1795525744136"])
def test_whole_entries_of_every_source_pass(log: Path, tmp_path: Path, text: str) -> None:
    (log / "6").write_text(text)
    assert told(tmp_path, '{"logOffset":6}') == []


@pytest.mark.parametrize("text", ["", ENTRY[:30]])
def test_what_no_batch_reads_may_be_removed(log: Path, tmp_path: Path, text: str) -> None:
    (log / "6").write_text(text)
    [(place, remedy)] = told(tmp_path, '{"logOffset":5}')
    assert place == "sources/0/6"
    assert remedy == "No batch reads it yet: remove it and sources/0/.6.crc, and Spark finds its input again."


@pytest.mark.parametrize("planned", [None, '{"logOffset":6}', '{"topic":{"0":1}}'])
def test_input_that_a_batch_reads_comes_from_a_copy(log: Path, tmp_path: Path, planned: str | None) -> None:
    (log / "6").write_text("")
    assert told(tmp_path, planned) == [("sources/0/6", "Restore the checkpoint from a copy.")]


def test_what_is_compacted_is_not_read_any_more(log: Path, tmp_path: Path) -> None:
    (log / "3").write_text("")
    assert told(tmp_path, '{"logOffset":6}') == []
    (log / "4.compact").write_text("")
    assert told(tmp_path, '{"logOffset":6}') == [("sources/0/4.compact", "Restore the checkpoint from a copy.")]
