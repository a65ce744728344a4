"""What keeps a path from being used, in words."""

import errno
import os
from pathlib import Path

import pytest

from penstock.support.filesystem_errors import directory_problem, file_problem, path_problem, problem_of


def test_an_error_is_told_in_plain_words() -> None:
    assert problem_of(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))).reason == "the disk is full"
    assert problem_of(FileExistsError(errno.EEXIST, "x")).reason == "a file is where a directory is expected"
    assert problem_of(OSError(errno.EMLINK, "Too many links")).reason == "Too many links"
    assert problem_of(OSError("no number")).reason == "no number"


def test_what_is_fine_is_no_trouble(tmp_path: Path) -> None:
    assert path_problem(tmp_path / "new") is None
    assert path_problem(tmp_path) is None
    assert directory_problem(tmp_path / "a/b/c") is None
    assert directory_problem("hdfs://host/a") is None
    assert directory_problem(tmp_path.as_uri()) is None


def test_what_is_seen_of_a_path(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    missing, below, directory, within = (
        path_problem(tmp_path / "no/db"),
        path_problem(tmp_path / "file/db"),
        file_problem(tmp_path),
        directory_problem(tmp_path / "file/a/b"),
    )
    assert missing is not None
    assert missing.reason == f"the directory {tmp_path / 'no'} does not exist"
    assert below is not None
    assert below.reason == "a file is where a directory is expected"
    assert directory is not None
    assert directory.reason == "a directory is where a file is expected"
    assert within == below


@pytest.mark.skipif(not os.access("/proc/sys", os.R_OK), reason="needs Linux")
def test_a_file_system_that_takes_nothing_is_told() -> None:
    found = path_problem("/proc/penstock")
    assert found is not None
    assert found.reason in {"the disk is full", "permission is denied", "the file system is read-only"}
