"""One table, filled by the sink that is made for its database and by the one for any driver: whoever comes second is refused.

Each keeps markers of its own, so that `verify` of the first one would report the rows of the other.
"""

from collections import Counter
from contextlib import closing
from importlib import import_module

import pytest
from tests.attack.any_driver import AnyDriverRig
from tests.unit.table_target import TableBench

from penstock.errors import Refused
from penstock.testing.conformance import PIPELINE

KINDS = ["sqlite", "postgres", "mysql"]
ROWS = [(1, "a"), (2, "b")]


@pytest.fixture(params=KINDS)
def tables(request, tmp_path):
    """One table twice: as the native sink's and behind any driver."""
    rig = import_module(f"tests.unit.{request.param}_target").TableRig(tmp_path)
    made = TableBench(rig), TableBench(AnyDriverRig(request.param, rig))
    yield made
    for one in made:
        one.close()


def deliver(table, *rows, batch_id):
    """In a run of its own."""
    sink = table.sink()
    table.put(sink, rows, batch_id=batch_id)
    assert table.verify(sink).ok
    sink.close()


def prepare(bench, **settings):
    with closing(bench.rig.make(**settings)) as sink:
        sink.prepare(pipeline=PIPELINE, schema=bench.rig.schema)


@pytest.mark.parametrize("order", [1, -1], ids=["native-first", "any-driver-first"])
def test_a_table_of_a_sink_of_one_kind_is_refused_to_the_other(tables, order):
    first, second = tables[::order]
    deliver(first, *ROWS, batch_id=0)
    with pytest.raises(Refused, match=f"Table 't' is filled by sink '(warehouse|any)' of pipeline '{PIPELINE}'"):
        prepare(second)
    prepare(second, table="u")
    deliver(first, (3, "c"), batch_id=1)
    assert Counter(first.sql("SELECT * FROM t")) == Counter([*ROWS, (3, "c")])


@pytest.mark.parametrize("tables", ["postgres"], indirect=True)
@pytest.mark.parametrize("order", [1, -1], ids=["native-first", "any-driver-first"])
def test_a_table_of_that_name_in_another_schema_is_another_one(tables, order):
    first, second = tables[::order]
    first.sql("CREATE SCHEMA shop")
    prepare(first, table="shop.t")
    prepare(second)
    with pytest.raises(Refused, match=r"Table 'shop\.t' is filled by sink"):
        prepare(second, table="shop.t", name="other")
