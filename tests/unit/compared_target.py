"""What tables with `history` and `update_when` must hold, by a replay in memory that knows nothing of how they are written."""

import random
from collections import Counter

from tests.unit.table_target import GONE, content, spark_schema

CHANGES = spark_schema(id="long", name="string", version="long")
HISTORY = {"schema": CHANGES, "write": "upsert", "key": ["id"], "history": True}
"""Options of a table that keeps history in the order of the stream."""
IN_TIME = {**HISTORY, "sequence_by": "version"}
DELETING = {"deletes": True}
VERSIONS = "SELECT id, name, version, valid_from, valid_to, is_current FROM t"
PLACES = 32


def kept(there, rows, position, *, sequence_by, deletes):
    """Change `there`, the versions by key, each as a list of row, start and end, as the rule in the docs says."""
    told = {}
    for number, row in enumerate(rows):
        time = row[2] if sequence_by else (position << PLACES) + number
        is_gone = deletes and row[1] == GONE
        told.setdefault(row[0], []).append((time, 2 + number, None if is_gone else row))
    for key, events in told.items():
        versions = there.get(key, [])
        starts = {start for _, start, _ in versions}
        for row, start, end in versions:
            events.append((start, 0, row))
            if end is not None and (end == start or end not in starts):
                events.append((end, 1, None))
        there[key] = _folded(sorted(events, key=lambda event: event[:2]), repeats_count=bool(sequence_by))


def _folded(events, *, repeats_count):
    made, is_there = [], False
    for time, _, row in events:
        if is_there and made[-1][1] != time:
            if row is not None and not repeats_count and made[-1][0] == row:
                continue
            made[-1][2] = time
        if row is None:
            if is_there:
                made[-1][2] = time
            is_there = False
        else:
            if made and made[-1][1] == time:
                made.pop()
            made.append([row, time, None])
            is_there = True
    return made


def versions(there):
    return Counter((*row, start, end, end is None) for each in there.values() for row, start, end in each)


def found(table):
    return Counter((*row[:5], bool(row[5])) for row in table.sql(VERSIONS))


def random_changes(chance, *, deletes):
    """Changes of few keys: late, repeated, equally new, and rows that delete what is there or what is not."""
    names = [*"ab", *([GONE] * deletes)]
    return [(chance.randrange(4), chance.choice(names), chance.randrange(12)) for _ in range(chance.randrange(12))]


def require_history(table, seed, *, batches=6):
    """Publish random changes, each batch twice, and compare each time with a replay in memory and with the ledger."""
    chance, options = random.Random(seed), table.rig.options
    sink, there = table.sink(), {}
    for batch_id in range(batches):
        attempts = [random_changes(chance, deletes=options.get("deletes", False)) for _ in range(2)]
        shown = table.put(sink, *attempts, batch_id=batch_id)
        assert sink.publish(shown.publication).already
        rows = [row for part in attempts for row in part]
        kept(there, rows, shown.publication.position, sequence_by=options.get("sequence_by"), deletes=options.get("deletes"))
        assert found(table) == versions(there)
        report = table.verify(sink)
        assert report.ok, report
    return there


CONDITION = "new.version > old.version AND old.name <> 'final' OR old.version IS NULL"


def replaces(new, old):
    """Whether CONDITION holds for rows of `CHANGES`."""
    return old[2] is None or (new[2] is not None and new[2] > old[2] and old[1] is not None and old[1] != "final")


def require_updates(table, seed, *, batches=6):
    """Publish random changes under CONDITION: of a batch, the last row of a key counts, or the newest by `sequence_by`."""
    chance, options = random.Random(seed), table.rig.options
    sink, present, in_sequence = table.sink(), {}, options.get("sequence_by")
    for batch_id in range(batches):
        versions = list(range(12)) if in_sequence else [None, *range(12)]
        names = ["a", "final", *([GONE] * options.get("deletes", False))]
        rows = [(chance.randrange(12), chance.choice(names), chance.choice(versions)) for _ in range(chance.randrange(25))]
        shown = table.put(sink, rows[:9], rows[9:], batch_id=batch_id)
        assert sink.publish(shown.publication).already
        counted = {}
        for row in rows:
            before = counted.get(row[0])
            if before is None or not in_sequence or row[2] >= before[2]:
                counted[row[0]] = row
        for number, row in counted.items():
            old = present.get(number)
            if options.get("deletes") and row[1] == GONE:
                present.pop(number, None)
            elif old is None or (replaces(row, old) and (not in_sequence or row[2] >= old[2])):
                present[number] = row
        assert content(table, "SELECT id, name, version FROM t") == Counter(present.values())
        assert table.verify(sink).ok
