"""Directories as accounts: what is refused before anything runs, and what `check` says."""

import os
from pathlib import Path
from typing import Any

import pytest
from tests.unit.parquet_target import LEDGER_ID, PIPELINE, SCHEMA, Target, decide, rows, stage

from penstock.core.model import AccountName, Generation, PipelineName, SinkName, SweepCut
from penstock.errors import Failed, Refused, Usage
from penstock.sink.parquet import ParquetSink, directory_account

OTHER_DISK = Path("/dev/shm")


def sink_of(*roots: Path, staging: Path | None = None, **settings: Any) -> ParquetSink:
    options = {} if staging is None else {"staging": str(staging)}
    accounts = {AccountName(f"a{number}"): directory_account(root, options=options) for number, root in enumerate(roots)}
    settings = {"route_sql": "route" if len(roots) > 1 else None, **settings}
    return ParquetSink(name=SinkName("lake"), pipeline=PIPELINE, accounts=accounts, **settings)


@pytest.mark.parametrize(
    ("first", "second"),
    [("lake/x", "lake/x"), ("lake", "lake/x"), ("lake/x", "lake"), ("lake/x", "lake/x/../x/y"), ("lake/x", "link/y")],
)
def test_nested_accounts_are_refused(tmp_path: Path, first: str, second: str) -> None:
    (tmp_path / "lake/x").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "lake/x")
    with pytest.raises(Usage, match=r"The accounts 'a0' and 'a1' of sink 'lake' overlap"):
        sink_of(tmp_path / first, tmp_path / second)


def test_staging_inside_of_an_account_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Usage, match="where readers would see it"):
        sink_of(tmp_path / "lake", staging=tmp_path / "lake/.staging")
    with pytest.raises(Usage, match="where readers would see it"):
        sink_of(tmp_path / "lake", tmp_path / "lake2", staging=tmp_path / "lake2" / "staging")


def test_accounts_side_by_side_are_fine_also_with_one_staging(tmp_path: Path) -> None:
    sink = sink_of(tmp_path / "x/raw", tmp_path / "y/raw", staging=tmp_path / "staging")
    sink.prepare(pipeline=PIPELINE, schema=SCHEMA)
    sink.publish(decide(stage(sink, rows(1, 2), routes=["a0", "a1"])))
    assert sorted(path.parent.parent.name for path in tmp_path.rglob("*.parquet")) == ["x", "y"]
    assert sorted(path.name for path in (tmp_path / "staging/flights/lake").iterdir()) == ["a0", "a1"]


@pytest.mark.skipif(not OTHER_DISK.is_dir(), reason="needs a second file system")
def test_staging_on_another_disk_is_refused(tmp_path_factory: pytest.TempPathFactory) -> None:
    disk = tmp_path_factory.mktemp("disk")
    assert OTHER_DISK.stat().st_dev != disk.stat().st_dev
    staging = OTHER_DISK / f"penstock-test-{os.getpid()}"
    try:
        sink = sink_of(disk / "lake", staging=staging)
        with pytest.raises(Refused, match="are on different file systems"):
            sink.prepare(pipeline=PIPELINE, schema=SCHEMA)
        assert [finding.ok for finding in sink.check()] == [False]
    finally:
        for path in sorted(staging.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        staging.rmdir()


@pytest.mark.parametrize("root", ["relative", "/", "//", "/tmp/.."])
def test_a_root_must_be_an_absolute_path_of_its_own(root: str) -> None:
    with pytest.raises(Usage, match="An account is the path"):
        directory_account(root)


def test_options_are_checked() -> None:
    with pytest.raises(Usage, match="no option 'region'"):
        directory_account("/data/lake", options={"region": "eu"})
    with pytest.raises(Usage, match="publish_by is 'copy'"):
        directory_account("/data/lake", options={"publish_by": "copy"})


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"route_sql": None}, "2 accounts and no route"),
        ({"unrouted": AccountName("zz")}, "unrouted rows to 'zz'"),
        ({"compression": "zip"}, "compression 'zip'"),
    ],
)
def test_settings_that_do_not_fit_are_refused(tmp_path: Path, settings: dict[str, Any], told: str) -> None:
    with pytest.raises(Usage, match=told):
        sink_of(tmp_path / "x", tmp_path / "y", **settings)


@pytest.mark.parametrize(
    ("partition_by", "types", "told"),
    [
        (["nope"], {"id": "long", "s": "string"}, "names the column 'nope'"),
        (["id"], {"id": "timestamp", "s": "string"}, "expected string, an integer type, boolean or date"),
        ([], {"id": "long", "ID": "string"}, "Two columns are named 'ID'"),
        ([], {"id": "void"}, "which Parquet cannot hold"),
    ],
)
def test_rows_that_no_account_can_hold_are_refused_before_the_first_batch(
    tmp_path: Path, partition_by: list[str], types: dict[str, str], told: str
) -> None:
    import json

    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in types.items()]
    sink = sink_of(tmp_path / "x", partition_by=partition_by)
    with pytest.raises(Usage, match=told):
        sink.prepare(pipeline=PIPELINE, schema=json.dumps({"type": "struct", "fields": fields}))


def test_a_directory_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for root in (tmp_path / "file", tmp_path / "file/below", Path("/proc/penstock/lake")):
        sink = sink_of(root)
        with pytest.raises(Failed, match=r"cannot be prepared: (a file is where|a directory on the way|.*exists)"):
            sink.prepare(pipeline=PIPELINE, schema=SCHEMA)
        assert not any(finding.ok for finding in sink.check())


def test_check_says_what_it_found_and_leaves_nothing(tmp_path: Path) -> None:
    sink = sink_of(tmp_path / "lake")
    (found,) = sink.check()
    assert found.ok
    assert "published by rename" in found.message
    assert found.message.endswith(" GB free.")
    assert found.subject == f"account {tmp_path / 'lake'}"
    assert list(tmp_path.iterdir()) == []


def test_check_finds_what_cannot_be_looked_at(tmp_path: Path) -> None:
    (found,) = sink_of(tmp_path / ("x" * 300)).check()
    assert not found.ok
    assert "cannot be looked at: the name is too long" in found.message


def test_names_cannot_leave_the_staging_directory(tmp_path: Path) -> None:
    account = directory_account(tmp_path / "lake")
    area = account.area(pipeline=PipelineName("../../x"), sink=SinkName(".."), account=AccountName("a"))
    assert area.staging == tmp_path / ".penstock-staging/lake/%2E.%2F..%2Fx/%2E."


def test_preparing_twice_keeps_the_identity(tmp_path: Path) -> None:
    target = Target(tmp_path)
    sink, stager = target.sink(), target.sink().stager()
    target.sink()
    assert stager == target.sink().stager()
    assert len(list(tmp_path.rglob("*.id"))) == 1
    assert sink.stager() == stager


def test_what_a_run_killed_in_its_first_preparation_left_holds_nothing(tmp_path: Path) -> None:
    """`penstock sweep` and `penstock doctor` look before another run completes the preparation."""
    (tmp_path / ".penstock-staging/lake/flights/lake").mkdir(parents=True)
    sink = sink_of(tmp_path / "lake")
    cut = SweepCut(pipeline=PIPELINE, ledger_id=LEDGER_ID, generation=Generation(1), batch_id=None, kept=frozenset())
    assert list(sink.waiting(AccountName("a0"), pipeline=PIPELINE)) == []
    assert sink.sweep(cut, dry_run=True) == []
