"""Every store of objects does what the sink and the ledger rely on, on a real server of each kind."""

from itertools import count

import pytest
from tests.conformance.blob_contract import BlobContract
from tests.servers.fixtures import server

from penstock.blob import BlobStore, open_store

_numbers = count()


@pytest.fixture(params=["az", "gs", "hdfs", "s3"])
def store(request: pytest.FixtureRequest) -> BlobStore:
    place = server(request.param).place(f"blob{next(_numbers)}")
    return open_store(place.url, options=place.options)


class TestBlob(BlobContract):
    pass
