"""Every store of objects does what the sink and the ledger rely on, on a real server of each kind."""

import pytest
from tests.conformance.blob_contract import BlobContract
from tests.servers.fixtures import server, unique

from penstock.blob import BlobStore, open_store


@pytest.fixture(params=["az", "gs", "hdfs", "s3"])
def store(request: pytest.FixtureRequest) -> BlobStore:
    place = server(request.param).place(unique("blob"))
    return open_store(place.url, options=place.options)


class TestBlob(BlobContract):
    pass
