"""The sinks whose servers cannot be had for the tests, on one of yours: name a database that may be filled and emptied.

PENSTOCK_REDSHIFT_URL=redshift://… PENSTOCK_SQLSERVER_URL=sqlserver://… pytest tests/live/test_live_servers.py
"""

import os

import pytest
from tests.unit.table_target import TableBench

from penstock.core import faults
from penstock.core.model import SinkName
from penstock.errors import OutcomeUnknown
from penstock.run.required_guarantees import UNPROVED
from penstock.sink.redshift.sink import RedshiftSink
from penstock.sink.sqlserver.sink import SqlserverSink
from penstock.testing.conformance import SinkRig, make_rows

SINKS = {"redshift": RedshiftSink, "sqlserver": SqlserverSink}


class LiveRig(SinkRig):
    """A table of its own by number; what stays there is for people to look at, and to drop."""

    def __init__(self, directory, kind, **options):
        super().__init__(directory)
        self.kind, self.options = kind, options
        self.name = f"penstock_live_{os.getpid()}_{options['write']}"

    def make(self):
        url = os.environ[f"PENSTOCK_{self.kind.upper()}_URL"]
        spool = str(self.directory / "spool")
        return SINKS[self.kind](name=SinkName(self.name), url=url, table=self.name, spool=spool, **self.options)

    def read_back(self):
        return []


LIVE = [kind for kind in SINKS if f"PENSTOCK_{kind.upper()}_URL" in os.environ]


def test_these_are_the_sinks_that_check_calls_not_run():
    assert SINKS.keys() == UNPROVED.keys()
    assert [why for why in UNPROVED.values() if "Not run against a live server" not in why] == []


if LIVE:

    @pytest.mark.parametrize("write", ["append", "upsert", "insert_if_absent", "replace"])
    @pytest.mark.parametrize("kind", LIVE)
    def test_batches_are_delivered_once_and_read_back(kind, write, tmp_path):
        table = TableBench(LiveRig(tmp_path, kind, write=write, key=["id"] if write in {"upsert", "insert_if_absent"} else []))
        sink = table.sink()
        plain = [{**row, "name": "plain", "amount": 0.5} for row in make_rows(range(1000))]
        table.deliver(sink, plain, batch_id=0)
        publication = table.decide((plain, table.stage(sink, plain, batch_id=1)), batch_id=1).publication
        faults.arm(f"{kind}.commit=lost")
        with pytest.raises(OutcomeUnknown):
            sink.publish(publication)
        assert sink.publish(publication).already
        report = table.verify(sink)
        assert report.ok, report
        table.close()
