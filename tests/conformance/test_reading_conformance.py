"""`penstock.read` sees whole batches in accounts of every kind, on real servers, also while one account lacks a batch."""

import io
import multiprocessing
import signal
from collections.abc import Mapping
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.servers.fixtures import accounts_on
from tests.servers.server import Outside, Place
from tests.unit.lake import ACCOUNTS, Lake

from penstock.core.faults import arm
from penstock.errors import Retryable
from penstock.run.reading import Reading

MARKING = {"directory": "parquet.marker.place=kill@2"}


def ids(found: Reading) -> list[int]:
    return sorted(found.arrow().column("id").to_pylist())


def run_with_fault(directory: Path, places: Mapping[str, Place], number: int, fault: str) -> None:
    arm(fault)
    Lake(directory, places=places).run([number])


def killed_before_the_second_mark(lake: Lake, places: Mapping[str, Place], number: int, fault: str) -> None:
    """Both accounts may list the files of batch `number`, but only one has its mark."""
    child = multiprocessing.get_context("spawn").Process(target=run_with_fault, args=(lake.directory, places, number, fault))
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL


@pytest.mark.parametrize("kind", ["directory", "az", "gs", "hdfs", "s3"])
def test_whole_batches_are_read(tmp_path: Path, kind: str) -> None:
    fresh = {} if kind == "directory" else accounts_on(lake=kind, other=kind)
    accounts: Mapping[str, tuple[Place, Outside]] = dict(zip(ACCOUNTS, fresh.values(), strict=False))
    places = {name: place for name, (place, _) in accounts.items()}
    lake = Lake(tmp_path, places=places)
    lake.run([0, 1])
    assert ids(lake.pipeline.read()) == lake.ids(2)
    killed_before_the_second_mark(lake, places, 2, MARKING.get(kind, "object.mark.write=kill@2"))
    assert ids(lake.pipeline.read()) == lake.ids(2)
    with pytest.raises(Retryable, match="Batch 2 is not published in every account yet"):
        lake.pipeline.read(batch=2)
    lake.pipeline.recover()
    for number in range(3):
        assert ids(lake.pipeline.read(batch=number)) == lake.ids(number + 1)
    found, added = lake.pipeline.read(counted=True), lake.pipeline.read(batch=1, added=True)
    for file in found.files:
        assert file.rows == rows_outside(accounts, file.account, file.url, file.name)
    assert list(added.files) == [file for file in found.files if file.batch_id == 1]
    assert found.urls() == [file.url for file in lake.pipeline.read().files]


def rows_outside(accounts: Mapping[str, tuple[Place, Outside]], account: str, url: str, name: str) -> int:
    """Of the object that another client finds under that name."""
    if account not in accounts:
        return int(pq.ParquetFile(url).metadata.num_rows)
    place, outside = accounts[account]
    assert url == f"{place.url}/{name}"
    return int(pq.ParquetFile(io.BytesIO(outside.get(name))).metadata.num_rows)
