"""What the tests of all sinks that fill a table have in common: rows as tuples, delivered step by step."""

import datetime as dt
import itertools
import json
import random
from collections import Counter
from decimal import Decimal

import pytest

from penstock.core import faults
from penstock.core.model import NEWEST_ROW_DIGEST, SinkName
from penstock.core.row_hash import digest, row_hashes
from penstock.core.taken_back import TakenBack
from penstock.errors import PenstockError, Refused
from penstock.testing.conformance import Bench, as_batch

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


IN_SEQUENCE = {
    "schema": spark_schema(id="long", name="string", version="long"),
    "write": "upsert",
    "key": ["id"],
    "sequence_by": "version",
}
"""Options of a table in which no older row replaces a newer one."""


def written_in_sequence(present, rows):
    """Change `present`, rows by id, as a table is changed IN_SEQUENCE by `rows` in their order."""
    for row in rows:
        there = present.get(row[0])
        if there is None or there[2] is None or row[2] >= there[2]:
            present[row[0]] = row


def require_newest_stay(table, seed):
    """Publish random changes into a table that is filled IN_SEQUENCE: late, repeated, equally new; compare with a replay."""
    chance = random.Random(seed)
    sink, present = table.sink(), {}
    for batch_id in range(5):
        attempts = [
            [(chance.randrange(25), f"{batch_id}-{part}-{at}", chance.randrange(-9, 12)) for at in range(chance.randrange(40))]
            for part in range(2)
        ]
        shown = table.put(sink, *attempts, batch_id=batch_id)
        assert sink.publish(shown.publication).already
        written_in_sequence(present, (row for rows in attempts for row in rows))
        assert content(table, "SELECT id, name, version FROM t") == Counter(present.values())
        marked = table.sql("SELECT rows_after, digest_after FROM penstock_marker")
        rows = as_batch(table.named(present.values()), table.rig.schema)
        assert marked == [(len(present), f"{digest(row_hashes(rows, NEWEST_ROW_DIGEST)):016x}")]
    assert table.verify(sink).ok


ORDERED = {
    "integer": (-20, -3, 9, 10, 100),
    "decimal(12,2)": tuple(map(Decimal, ("-10.00", "-9.50", "0.00", "9.99", "10.00", "100.25"))),
    "date": (dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(2026, 9, 9), dt.date(2026, 10, 1)),
    "timestamp": tuple(
        dt.datetime.fromisoformat(text)
        for text in (
            "1971-01-01T00:00:00Z",
            "2026-10-25T02:30:00+02:00",
            "2026-10-25T02:15:00+01:00",
            "2026-10-25T01:15:00.000001Z",
        )
    ),
    "timestamp_ntz": tuple(
        dt.datetime.fromisoformat(text) for text in ("0001-01-01T00:00:00", "1969-12-31T23:59:59", "2026-03-29T02:30:00.5")
    ),
    "string": (
        "",
        "0000000010/",
        "00000000100",
        "B",
        "a",
        "a ",
        "a!",
        "b",
        "z" * 2000 + "B",
        "z" * 2000 + "a",
        "é",
        "\uffee",
        "😀",
    ),
}
"""Values of each type that may say which row is newer, in their order; as texts they have another one."""


def require_ordered(make, kind, *, created=()):
    """Publish rows of one key in each order of two values: the newer one stays, in a batch and across batches.

    `created`: the statements that make the table, unless the sink makes it.
    """
    table = make(**{**IN_SEQUENCE, "schema": spark_schema(id="long", name="string", version=kind)})
    if created:
        table.sql(*created)
    sink, pairs = table.sink(), list(enumerate(itertools.combinations(ORDERED[kind], 2), start=1))
    fresh = [[(key, "new", new), (-key, "new", new), (-key, "old", old)] for key, (old, new) in pairs]
    table.put(sink, list(itertools.chain(*fresh)), batch_id=0)
    table.put(sink, [(key, "late", old) for key, (old, _) in pairs], batch_id=1)
    assert Counter(name for _, name in table.sql("SELECT id, name FROM t")) == {"new": 2 * len(pairs)}
    table.put(sink, [(key, "as new", new) for key, (_, new) in pairs], batch_id=2)
    assert Counter(name for _, name in table.sql("SELECT id, name FROM t")) == {"new": len(pairs), "as new": len(pairs)}
    assert table.verify(sink).ok


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


BATCHES = {"batch_column": "written_by"}
"""Options of a table that tells batches apart."""


def taken_from(shown, *, after, before):
    """What a rewind takes back of the deliveries `shown`."""
    publications = [each.publication for each in shown if after < each.publication.position < before][::-1]
    first = publications[0]
    return TakenBack(
        pipeline=first.pipeline,
        sink=first.sink,
        ledger_id=first.ledger_id,
        generation=first.generation,
        after=after,
        position=before,
        publications=tuple(publications),
    )


def require_batches_taken_back(target):
    """Deliver batches, take the last two back, twice and after a failure, and deliver others; each says of which batch it is."""
    table = target(**BATCHES)
    sink = table.sink()
    shown = [table.put(sink, [(number, "a"), (number + 10, None)], batch_id=number) for number in range(4)]
    positions = [each.publication.position for each in shown]
    assert table.sql("SELECT written_by, COUNT(*) FROM t GROUP BY written_by ORDER BY written_by") == [
        (at, 2) for at in positions
    ]
    assert table.verify(sink).ok
    taken = taken_from(shown, after=positions[1], before=positions[3] + 1)
    sink.require_taken_back_exactly(taken)
    faults.arm("table.take_back=error")
    with pytest.raises(PenstockError):
        sink.take_back(taken)
    faults.arm("")
    assert len(content(table)) == 8
    for _ in range(2):
        sink.take_back(taken)
        assert content(table) == Counter([(0, "a"), (10, None), (1, "a"), (11, None)])
    del table.decided[2:]
    sink = table.sink()
    assert table.verify(sink).ok
    assert sink.publish(shown[1].publication).already
    with pytest.raises(Refused, match="holds 0 rows of these batches by its column 'written_by', expected 4"):
        sink.require_taken_back_exactly(taken)


def require_widened_batches_taken_back(target):
    """Take back a batch of before a column was wider, and the one that widened it: what is left is told exactly."""
    narrow, wide = (spark_schema(id=kind, name="string") for kind in ("integer", "long"))
    table = target(schema=narrow, schema_changes="widen", **BATCHES)
    sink = table.sink()
    shown = [table.put(sink, [(number, "a")], batch_id=number) for number in range(2)]
    table.rig.schema = wide
    sink = table.sink()
    shown.append(table.put(sink, [(2**40, "a")], batch_id=2))
    sink.take_back(taken_from(shown, after=shown[0].publication.position, before=99))
    assert content(table) == Counter([(0, "a")])
    del table.decided[1:]
    assert table.verify(sink).ok
