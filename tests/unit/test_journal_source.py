"""The offsets of a source `format: journal`: where it begins, what a batch reads, what it releases, and what it refuses."""

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.unit.forgetful_disk import ForgetfulDisk
from tests.unit.journal_clients import HOME, SMALL, pushed, registered, released

from penstock.core.model import SourceName
from penstock.errors import InputLost, JournalDamaged, LedgerMismatch, Retryable
from penstock.journal.event import Event
from penstock.journal.journal import Journal
from penstock.journal.readers import forget, registration_of
from penstock.journal.segment import open_segment, segment_firsts
from penstock.journal.storage import LocalStorage, WaitedLock
from penstock.source.journal.fetch import batches_of
from penstock.source.journal.journals import Journals, describe_lag, journals_of
from penstock.source.journal.settings import JournalSettings, settings_in
from penstock.source.journal.stream import JournalStream, Offset
from penstock.spec.load import load

STORAGE = LocalStorage()
WEB = SourceName("web")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "journals"


def settings(root: Path, **more: Any) -> JournalSettings:
    return JournalSettings(name="web", reader="clicks/web", pattern=str(root / "*"), **more)


def stream(root: Path, **more: Any) -> JournalStream:
    return JournalStream(settings(root, **more), STORAGE, now_us=lambda: 1)


def push(home: Path, *values: str) -> Journal:
    journal = Journal(home, now_us=lambda: 1_000_000, limits=replace(SMALL, least_free_bytes=0))
    for value in values:
        journal.append([Event(value=value.encode(), key=b"k", headers=(("h", b"1"),), producer="p", remote="r")])
        journal.commit()
    journal.close()
    return journal


def id_of(home: Path) -> str:
    return open_segment(STORAGE, home, segment_firsts(STORAGE, home)[0]).header.journal_id


def offset(home: Path, next_: int, *, begin: int = 0) -> dict[SourceName, str | None]:
    """Return the offset of a query that goes on with `next_`, as Spark logs it."""
    return {WEB: json.dumps({id_of(home): [begin, next_]})}


def rows(reader: JournalStream, start: Offset, end: Offset, given: JournalSettings) -> list[dict[str, Any]]:
    return [row for piece in reader.planned(start, end) for batch in batches_of(piece, given) for row in batch.to_pylist()]


def batches(reader: JournalStream, start: Offset, given: JournalSettings) -> Iterator[list[str]]:
    while (end := reader.advance(start)) != start:
        yield [row["value"].decode() for row in rows(reader, start, end, given)]
        start = end


def numbers(count: int, name: str = "") -> list[str]:
    return [f"{name}{number}" for number in range(count)]


def test_the_columns_hold_what_was_pushed(root: Path) -> None:
    push(root / "a", "0", "1")
    reader = stream(root)
    begin = reader.begin()
    first, second = rows(reader, begin, reader.advance(begin), settings(root))
    assert second.pop("received_at").timestamp() == 1
    assert second == {
        "value": b"1",
        "key": b"k",
        "headers": [{"key": "h", "value": b"1"}],
        "producer": "p",
        "producer_sequence": None,
        "journal": id_of(root / "a"),
        "sequence": 1,
        "remote": "r",
    }
    assert first["sequence"] == 0


def test_a_query_begins_with_the_first_event_or_behind_the_last(root: Path) -> None:
    push(root / "a", *numbers(5))
    assert stream(root).begin() == {id_of(root / "a"): [0, 0]}
    forget(STORAGE, root / "a", "clicks/web")
    assert stream(root, begins_at_end=True).begin() == {id_of(root / "a"): [5, 5]}
    push(root / "a", "more")
    assert stream(root, begins_at_end=True).begin() == {id_of(root / "a"): [5, 5]}, (
        "Spark asks again with a first batch that failed"
    )


def test_limits_cut_batches_and_journals_share_them(root: Path) -> None:
    push(root / "a", *numbers(10, "a"))
    push(root / "b", *numbers(3, "b"))
    given = settings(root, max_records=4)
    reader = JournalStream(given, STORAGE, now_us=lambda: 1)
    found = list(batches(reader, reader.begin(), given))
    assert list(map(sorted, found)) == [
        ["a0", "a1", "b0", "b1"],
        ["a2", "a3", "b2"],
        ["a4", "a5", "a6", "a7"],
        ["a8", "a9"],
    ]
    by_size = settings(root, max_bytes=1)
    assert [len(batch) for batch in batches(JournalStream(by_size, STORAGE, now_us=lambda: 1), reader.begin(), by_size)] == [
        *[2] * 3,
        *[1] * 7,
    ]


def test_a_stop_reads_nothing_that_comes_later(root: Path) -> None:
    push(root / "a", "0")
    reader = stream(root)
    begin = reader.begin()
    reader.stop_at_now()
    push(root / "a", "1")
    push(root / "b", "2")
    assert list(batches(reader, begin, settings(root))) == [["0"]]


def test_a_journal_that_came_later_is_read_from_its_first_event(root: Path) -> None:
    push(root / "a", "0")
    reader = stream(root)
    end = reader.advance(reader.begin())
    push(root / "b", "1", "2")
    assert list(batches(reader, end, settings(root))) == [["1", "2"]]
    assert registration_of(STORAGE, root / "b", "clicks/web") is not None


def test_the_same_offsets_give_the_same_events_in_another_process(root: Path) -> None:
    push(root / "a", *numbers(9))
    reader = stream(root, max_records=5)
    begin = reader.begin()
    end = reader.advance(begin)
    push(root / "a", *numbers(20))
    again = stream(root)
    assert rows(again, again.begin(), end, settings(root)) == rows(reader, begin, end, settings(root))


def test_events_that_are_gone_are_an_error_with_their_number(root: Path) -> None:
    push(root / "a", *numbers(40))
    reader = stream(root)
    begin = reader.begin()
    journals = Journals({WEB: settings(root)})
    journals.release(offset(root / "a", 40))
    journal = Journal(root / "a", now_us=lambda: 2, limits=replace(SMALL, least_free_bytes=0))
    assert journal.remove_released() > 0
    journal.close()
    first = segment_firsts(STORAGE, root / "a")[0]
    with pytest.raises(InputLost, match=f"begins with event {first}, and source 'web' goes on with 0: {first} events are gone"):
        reader.advance(begin)


def test_a_journal_that_is_not_there_any_more_is_waited_for(root: Path) -> None:
    push(root / "a", "0")
    reader = stream(root)
    end = reader.advance(reader.begin())
    (root / "a").rename(root.with_name("elsewhere"))
    with pytest.raises(Retryable, match="read up to event 0, is not at"):
        reader.advance(end)
    root.with_name("elsewhere").rename(root / "a2")
    assert reader.advance(end) == end, "its name does not count"


def test_a_copy_of_a_journal_is_not_read_beside_it(root: Path) -> None:
    push(root / "a", "0")
    shutil.copytree(root / "a", root / "copy")
    with pytest.raises(LedgerMismatch, match="are one journal: one of them is a copy"):
        stream(root).begin()


def test_a_directory_that_cannot_be_read_is_told(root: Path) -> None:
    push(root / "a", "0")
    (root / "a" / "durable").unlink()
    (root / "a" / "durable").mkdir()
    with pytest.raises(Exception, match=r"The journal .* of source 'web' cannot be read"):
        stream(root).begin()


def test_what_is_published_is_released_and_lag_is_counted(root: Path) -> None:
    push(root / "a", *numbers(10))
    reader = stream(root)
    reader.begin()
    journals = Journals({WEB: settings(root)})
    delivered = offset(root / "a", 7)
    assert journals.release({WEB: None}) == ()
    assert journals.release(delivered) == ()
    known = registration_of(STORAGE, root / "a", "clicks/web")
    assert known is not None
    assert known.next == 7
    [lag] = journals.lag(delivered, now_ms=5_000)
    assert (lag.records, lag.behind_ms, lag.lost) == (3, 4_000, 0)
    assert describe_lag(lag) == f"journal {root / 'a'}: 3 events behind"
    [none] = journals.lag(offset(root / "a", 10), now_ms=5_000)
    assert (none.records, none.behind_ms) == (0, None)


def test_a_release_that_fails_is_a_warning(root: Path) -> None:
    push(root / "a", "0")
    shutil.rmtree(root / "a" / "readers")
    (root / "a" / "readers").write_text("")
    [warning] = Journals({WEB: settings(root)}).release(offset(root / "a", 1))
    assert warning.startswith("Nothing is released in the journals of 'web'")


# --- the pipeline file


def test_the_reader_has_the_name_of_pipeline_and_source(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(
        "pipeline: clicks\nhome: ./state\nsources:\n  web: {format: journal, path: ./j, options: {maxRecordsPerTrigger: 5}}\n"
        "sinks:\n  m: {type: memory}\n"
    )
    journals = journals_of(load(str(tmp_path / "p.yaml")))
    assert journals is not None
    assert journals._sources == {
        WEB: JournalSettings(name="web", reader="clicks/web", pattern=str(tmp_path / "j"), max_records=5)
    }
    assert settings_in({"PENSTOCK.SOURCE": "s", "penstock.Reader": "r", "penstock.path": "p", "startingoffsets": "LATEST"}) == (
        JournalSettings(name="s", reader="r", pattern="p", begins_at_end=True)
    )


def test_the_events_of_a_large_journal_come_in_several_arrow_batches(root: Path) -> None:
    push(root / "a", *(["x" * 100_000] * 50))
    reader = stream(root)
    begin = reader.begin()
    [piece] = reader.planned(begin, reader.advance(begin))
    sizes = [batch.num_rows for batch in batches_of(piece, settings(root))]
    assert len(sizes) > 1
    assert Counter(sizes).total() < 5
    assert sum(sizes) == 50


# --- registrations


def remove_released(home: Path) -> int:
    with closing(Journal(home, now_us=lambda: 2, limits=replace(SMALL, least_free_bytes=0))) as journal:
        return journal.remove_released()


def values(reader: JournalStream, start: Offset, end: Offset, root: Path) -> list[str]:
    return [row["value"].decode() for row in rows(reader, start, end, settings(root))]


@pytest.mark.parametrize("begins_at_end", [False, True])
def test_a_first_batch_is_the_same_after_its_reader_went_on(root: Path, *, begins_at_end: bool) -> None:
    push(root / "a", "0")
    reader = stream(root, begins_at_end=begins_at_end)
    begin = reader.begin()
    push(root / "a", "1", "2")
    push(root / "b", "3")
    end = reader.advance(begin)
    found = sorted(values(reader, begin, end, root))
    assert found == ["0", "1", "2", "3"][begins_at_end:]
    Journals({WEB: settings(root)}).release({WEB: json.dumps(end)})
    for again in (stream(root), stream(root, begins_at_end=True)):
        assert sorted(values(again, again.begin(), end, root)) == found, "Spark asks anew where the query begins"
        assert sorted(values(again, {}, end, root)) == found


def test_a_batch_whose_events_are_gone_is_planned_the_same_and_fails_in_its_task(root: Path) -> None:
    push(root / "a", *numbers(40))
    reader = stream(root, max_records=4)
    begin = reader.begin()
    end = reader.advance(begin)
    pieces = [(piece.first, piece.end) for piece in reader.planned(begin, end)]
    Journals({WEB: settings(root)}).release(offset(root / "a", 40))
    assert remove_released(root / "a") > 0
    again = stream(root)
    assert [(piece.first, piece.end) for piece in again.planned(again.begin(), end)] == pieces == [(0, 4)]
    with pytest.raises(InputLost, match="Event 0 of the journal"):
        values(again, again.begin(), end, root)


def test_a_reader_that_its_journal_does_not_know_is_registered_before_it_goes_on(root: Path) -> None:
    push(root / "a", *numbers(40))
    reader = stream(root, max_records=2)
    end = reader.advance(reader.begin())
    shutil.rmtree(root / "a" / "readers")
    again = stream(root, max_records=2)
    next_ = again.advance(end)
    released(STORAGE, "fast", 40, root / "a")
    remove_released(root / "a")
    assert values(again, end, next_, root) == ["2", "3"]


@pytest.mark.parametrize("asks", ["planned", "advance"])
def test_a_reader_that_is_set_back_holds_what_it_needs(root: Path, asks: str) -> None:
    push(root / "a", *numbers(40))
    reader = stream(root)
    end = reader.advance(reader.begin())
    Journals({WEB: settings(root)}).release(offset(root / "a", 40))
    back = {id_of(root / "a"): [0, 2]}
    assert stream(root).planned(back, end) if asks == "planned" else stream(root).advance(back)
    remove_released(root / "a")
    assert values(stream(root), back, end, root) == numbers(40)[2:]


class RemovalFirst(LocalStorage):
    """Lets the writer remove what is released just before a reader may register."""

    def __init__(self, home: Path) -> None:
        self.home, self.removed = home, 0

    def wait_for_lock(self, path: Path) -> WaitedLock:
        self.removed += remove_released(self.home)
        return super().wait_for_lock(path)


def test_a_reader_that_registers_late_begins_with_what_is_there(root: Path) -> None:
    push(root / "a", *numbers(40))
    released(STORAGE, "fast", 40, root / "a")
    storage = RemovalFirst(root / "a")
    late = JournalStream(settings(root), storage, now_us=lambda: 1)
    begin = late.begin()
    assert (storage.removed > 0, begin) == (True, {id_of(root / "a"): [segment_firsts(STORAGE, root / "a")[0]] * 2})
    assert late.advance(begin) != begin


def test_a_reader_that_is_set_back_too_late_is_told(root: Path) -> None:
    push(root / "a", *numbers(40))
    registered(STORAGE, root / "a", "clicks/web", 40)
    late = JournalStream(settings(root), RemovalFirst(root / "a"), now_us=lambda: 1)
    with pytest.raises(InputLost, match="goes on with 2"):
        late.advance({id_of(root / "a"): [0, 2]})
    known = registration_of(STORAGE, root / "a", "clicks/web")
    assert known is not None
    assert known.next == segment_firsts(STORAGE, root / "a")[0], "what is left stays"


def test_what_comes_while_a_query_runs_is_read_from_its_first_event(root: Path) -> None:
    reader = stream(root, begins_at_end=True)
    assert reader.begin() == {}
    push(root / "a", "0")
    assert reader.begin() == {id_of(root / "a"): [0, 0]}, "Spark asks until there is a first batch"
    end = reader.advance(reader.begin())
    push(root / "b", "1")
    assert list(batches(reader, end, settings(root))) == [["1"]]


def test_a_query_that_was_stopped_before_its_first_batch_has_begun(root: Path) -> None:
    push(root / "a", "0")
    stream(root, begins_at_end=True).begin()
    push(root / "b", "1")
    assert stream(root, begins_at_end=True).begin() == {id_of(root / "a"): [1, 1], id_of(root / "b"): [0, 0]}


# --- a journal that was restored


def restore(home: Path, backup: Path, *, readers: bool) -> None:
    for name in ("segments", "readers") if readers else ("segments",):
        shutil.rmtree(home / name)
        shutil.copytree(backup / name, home / name)
    shutil.copy(backup / "durable", home / "durable")


def test_numbers_that_a_reader_planned_are_not_given_away_again(root: Path, tmp_path: Path) -> None:
    push(root / "a", *numbers(5))
    shutil.copytree(root / "a", tmp_path / "backup")
    push(root / "a", "lost")
    reader = stream(root)
    reader.advance({id_of(root / "a"): [0, 2]})
    restore(root / "a", tmp_path / "backup", readers=False)
    with pytest.raises(JournalDamaged, match=r"Reader 'clicks/web' has events up to 5, and the journal .* ends with 4"):
        push(root / "a", "again")


@pytest.mark.parametrize("knows_reader", [False, True])
def test_an_older_journal_is_told_also_when_it_has_grown(root: Path, tmp_path: Path, *, knows_reader: bool) -> None:
    push(root / "a", *numbers(5))
    if knows_reader:
        stream(root).begin()
    shutil.copytree(root / "a", tmp_path / "backup")
    push(root / "a", *numbers(5))
    reader = stream(root)
    end = reader.advance(reader.begin())
    restore(root / "a", tmp_path / "backup", readers=True)
    for _ in range(2 if knows_reader else 1):
        with pytest.raises(InputLost, match=r"Events up to 9 were read .* knows of 4 only"):
            stream(root).advance(end)
        push(root / "a", *numbers(20))
    with pytest.raises(InputLost, match="knows of 4 only"):
        stream(root).advance(end)


def test_an_old_note_is_waited_for_until_the_receiver_starts(root: Path, tmp_path: Path) -> None:
    push(root / "a", *numbers(5))
    shutil.copy(root / "a" / "durable", tmp_path)
    push(root / "a", *numbers(5))
    reader = stream(root)
    end = reader.advance(reader.begin())
    shutil.copy(tmp_path / "durable", root / "a")  # it is not forced: a power failure may bring back an older one
    assert stream(root).advance(end) == end
    push(root / "a", "more")
    assert list(batches(stream(root), end, settings(root))) == [["more"]]


class OnDisk(JournalSettings):
    def homes(self) -> tuple[Path, ...]:
        return (HOME,)


def test_how_far_a_batch_reads_is_on_the_disk_before_it_is_planned() -> None:
    disk = ForgetfulDisk()
    pushed(disk, 5)
    reader = JournalStream(OnDisk(name="web", reader="clicks/web", pattern="/journal"), disk, now_us=lambda: 1)
    begin = reader.begin()
    pushed(disk, 5)
    reader.advance(begin)
    disk.forget_renamings()
    disk.crash(Random(1))
    known = registration_of(disk, HOME, "clicks/web")
    assert known is not None
    assert (known.next, known.planned) == (0, 10)


def test_a_directory_may_have_the_name_of_a_pattern(tmp_path: Path) -> None:
    home = tmp_path / "clicks[1]"
    push(home, "0")
    reader = JournalStream(JournalSettings(name="web", reader="clicks/web", pattern=str(home)), STORAGE, now_us=lambda: 1)
    assert reader.begin() == {id_of(home): [0, 0]}
