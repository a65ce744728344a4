"""What the tests of all sinks that fill a table have in common: rows as tuples, delivered step by step."""

import itertools
import json
from collections import Counter

import pytest

from penstock.core import faults
from penstock.core.model import SinkName
from penstock.testing.conformance import Bench

SINK = SinkName("warehouse")


def spark_schema(**columns):
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in columns.items()]
    return json.dumps({"type": "struct", "fields": fields})


def content(target, query="SELECT id, name FROM t"):
    """Rows, however often each is there and in whatever order."""
    return Counter(target.sql(query))


GONE = "gone"


class DeletingByName:
    """For a rig of a sink with `deletes`: rows of the name GONE delete."""

    @property
    def has_deletes(self):
        return self.options.get("deletes", False)

    def deletes(self, row):
        return row["name"] == GONE


DELETING = {"write": "upsert", "deletes": True}


def ways(*writes):
    """Parametrizes `options` with ways of writing by key `id`, rows that delete among them."""
    given = [*({"write": write} for write in writes), DELETING]
    return pytest.mark.parametrize("options", [{**one, "key": ["id"]} for one in given], ids=[*writes, "delete"])


def written(present, rows, options):
    """Change `present`, names by id, as a table is changed by `rows` in their order."""
    for number, name in rows:
        if options["write"] == "insert_if_absent":
            present.setdefault(number, name)
        elif name == GONE and options.get("deletes"):
            present.pop(number, None)
        else:
            present[number] = name


class TableBench(Bench):
    """A bench and its rig in one: `put` takes rows as tuples in the order of the columns."""

    def __init__(self, rig):
        super().__init__(rig)
        self.columns = [field["name"] for field in json.loads(rig.schema)["fields"]]

    def sql(self, *statement):
        return [tuple(row) for row in self.rig.sql(*statement)]

    def named(self, rows):
        return [dict(zip(self.columns, row, strict=True)) for row in rows]

    def put(self, sink, *attempts, batch_id):
        return self.deliver(sink, *(self.named(rows) for rows in attempts), batch_id=batch_id)

    def decided_but_not_published(self, sink, *attempts, batch_id):
        named = [self.named(rows) for rows in attempts]
        return self.decide(*((rows, self.stage(sink, rows, batch_id=batch_id)) for rows in named), batch_id=batch_id).publication


def targets_of(rig):
    """A fixture: makes tables, each in a database of its own, and closes them in the end."""

    def targets(tmp_path):
        made, numbers = [], itertools.count()

        def make(**options):
            directory = tmp_path / str(next(numbers))
            directory.mkdir()
            made.append(TableBench(rig(directory, **options)))
            return made[-1]

        yield make
        faults.arm("")
        for one in made:
            one.close()

    return targets
