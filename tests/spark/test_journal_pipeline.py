"""A pipeline that reads two journals: interrupted, started again and fed meanwhile, it delivers every event once."""

import json
import sqlite3
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.journal.event import Event
from penstock.journal.journal import Journal, JournalLimits
from penstock.journal.readers import registrations
from penstock.journal.reading import JournalReader
from penstock.journal.segment import segment_firsts
from penstock.journal.storage import LocalStorage
from tests.crash.commandline import penstock

pytestmark = pytest.mark.usefixtures("spark")

PIPELINE = """\
pipeline: clicks
home: ./state
sources:
  web: {format: journal, path: "./journals/*", options: {maxRecordsPerTrigger: 40}}
transform:
  sql: SELECT CAST(value AS STRING) AS value, producer, producer_sequence, journal, sequence, received_at, remote FROM web
sinks:
  clicks: {type: sqlite, url: "sqlite:///clicks.db", table: clicks, create: true}
trigger: {available_now: true}
"""
LIMITS = JournalLimits(segment_bytes=1_000, least_free_bytes=0)


def push(home: Path, count: int) -> Journal:
    journal = Journal(home, now_us=lambda: 1_700_000_000_000_000, limits=LIMITS)
    for number in range(journal.next + 1, journal.next + count + 1):
        journal.append([Event(value=f"{home.name} {number}".encode(), producer=home.name, number=number)])
    journal.commit()
    return journal


def delivered(directory: Path) -> "Counter[tuple[str, str, int]]":
    with sqlite3.connect(directory / "clicks.db") as connection:
        return Counter(connection.execute("SELECT value, producer, producer_sequence FROM clicks").fetchall())


def pushed(count: int) -> "Counter[tuple[str, str, int]]":
    return Counter((f"{name} {number}", name, number) for name in ("a", "b") for number in range(1, count + 1))


def test_events_of_two_journals_are_delivered_once_and_released(tmp_path: Path) -> None:
    (tmp_path / "clicks.yaml").write_text(PIPELINE)
    homes = [tmp_path / "journals" / name for name in ("a", "b")]
    for home in homes:
        push(home, 50).close()
    ended = penstock("run", "clicks.yaml", "--json", faults="sqlite.commit=error@2", directory=tmp_path)
    assert ended.code in {0, 75}, str(ended)
    for home in homes:
        push(home, 25).close()
    done = penstock("run", "clicks.yaml", "--json", directory=tmp_path)
    assert done.code == 0, str(done)
    assert delivered(tmp_path) == pushed(75)
    status = json.loads(penstock("status", "clicks.yaml", "--json", directory=tmp_path).out)
    assert [(each["records"], each["lost"]) for each in status["journals"]] == [(0, 0), (0, 0)]
    assert "events behind" in penstock("status", "clicks.yaml", directory=tmp_path).out
    assert penstock("verify", "clicks.yaml", directory=tmp_path).code == 0
    assert [each.reader for home in homes for each in registrations(LocalStorage(), home)] == ["clicks/web"] * 2

    again = penstock("run", "clicks.yaml", "--json", directory=tmp_path)  # nothing is new: what is committed is released
    assert (again.code, again.last["batches"]) == (0, 0), str(again)
    for home in homes:
        [registration] = registrations(LocalStorage(), home)
        assert registration.next == 75
        journal = Journal(home, now_us=lambda: 1, limits=replace(LIMITS, keep_us=0))
        assert journal.remove_released() > 0
        journal.close()
    assert segment_firsts(LocalStorage(), homes[0])[0] > 0

    extent = JournalReader(LocalStorage(), homes[0]).extent()
    assert extent is not None
    (tmp_path / "journals" / "a").rename(tmp_path / "elsewhere")
    missing = penstock("run", "clicks.yaml", "--json", directory=tmp_path)
    assert missing.code == 75, str(missing)
    assert f"The journal {extent.journal_id}, which source 'web' read up to event 74, is not at" in missing.err
