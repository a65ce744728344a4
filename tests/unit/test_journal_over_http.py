"""A journal that is read through its receiver's endpoint: the same events as from its files, or an error that says what to do."""

import http.client
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.servers.certificates import certify
from tests.unit.journal_clients import SMALL
from tests.unit.journal_server import TOKEN, JournalServer

from penstock.core.model import SourceName
from penstock.errors import Failed, InputLost, LedgerMismatch, Retryable
from penstock.journal.event import Event
from penstock.journal.journal import Journal
from penstock.journal.readers import registration_of
from penstock.journal.reading import JournalReader
from penstock.journal.segment import segment_firsts
from penstock.journal.storage import LocalStorage
from penstock.receive import read_endpoint
from penstock.source.journal import remote
from penstock.source.journal.fetch import batches_of
from penstock.source.journal.journals import Journals
from penstock.source.journal.remote import Endpoint, RemoteJournal
from penstock.source.journal.settings import JournalSettings
from penstock.source.journal.stream import JournalStream, Offset

STORAGE = LocalStorage()
READER = "clicks/web"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "journal"


@pytest.fixture
def server(home: Path) -> Iterator[JournalServer]:
    push(home, 0, 30)
    with JournalServer(home) as started:
        yield started


def push(home: Path, first: int, end: int) -> None:
    """Append the events `first` to `end` - 1, in several segments."""
    journal = Journal(home, now_us=lambda: 1_000_000, limits=replace(SMALL, least_free_bytes=0))
    for number in range(first, end):
        journal.append([Event(value=f"event {number}".encode(), key=b"k", headers=(("h", b"1"),), producer="p")])
        journal.commit()
    journal.close()


def endpoint(**more: Any) -> Endpoint:
    return Endpoint(**{"token": TOKEN, "patience_s": 0.0, **more})


def settings(server: JournalServer, **more: Any) -> JournalSettings:
    return JournalSettings(name="web", reader=READER, urls=(server.url,), **{"endpoint": endpoint(), **more})


def stream(given: JournalSettings) -> JournalStream:
    return JournalStream(given, STORAGE, now_us=lambda: 1)


def all_batches(given: JournalSettings) -> list[tuple[Offset, list[Any]]]:
    reader = stream(given)
    start, found = reader.begin(), []
    while (end := reader.advance(start)) != start:
        rows = [row for piece in reader.planned(start, end) for each in batches_of(piece, given) for row in each.to_pylist()]
        found.append((end, rows))
        start = end
    return found


def read(journal: RemoteJournal, first: int, end: int) -> list[int]:
    extent = journal.extent()
    assert extent is not None
    return [each.sequence for each in journal.read(first, end, journal_id=extent.journal_id, at=None)]


@pytest.mark.parametrize("limits", [{}, {"max_records": 7}, {"max_bytes": 500}, {"begins_at_end": True}], ids=str)
def test_batches_are_those_of_the_files(home: Path, server: JournalServer, limits: dict[str, Any]) -> None:
    local = JournalSettings(name="web", reader="other/web", pattern=str(home), **limits)
    assert all_batches(settings(server, **limits)) == all_batches(local)
    assert len(segment_firsts(STORAGE, home)) > 2
    here, there = (registration_of(STORAGE, home, name) for name in ("other/web", READER))
    assert here is not None
    assert there == replace(here, reader=READER)


def test_an_answer_has_some_bytes_only_and_the_next_one_goes_on(server: JournalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_endpoint, "ANSWER_BYTES", 200)
    assert read(RemoteJournal(server.url, endpoint()), 3, 30) == list(range(3, 30))


def test_what_is_released_over_http_is_removed(home: Path, server: JournalServer) -> None:
    given = settings(server)
    [(end, _)] = all_batches(given)
    journals = Journals({SourceName("web"): given})
    assert [lag.records for lag in journals.lag({}, now_ms=5_000)] == [30]
    [behind] = journals.lag({SourceName("web"): json.dumps({next(iter(end)): [0, 28]})}, now_ms=5_000)
    assert (behind.journal, behind.records, behind.behind_ms) == (server.url, 2, 4_000)
    assert journals.release({SourceName("web"): json.dumps(end)}) == ()
    journal = Journal(home, now_us=lambda: 1, limits=SMALL)
    assert journal.remove_released() > 0
    journal.close()
    extent = JournalReader(STORAGE, home).extent()
    assert extent is not None
    with pytest.raises(InputLost, match=r"Event 0 of the journal .* is gone"):
        read(RemoteJournal(server.url, endpoint()), 0, 30)
    assert read(RemoteJournal(server.url, endpoint()), extent.first, 30) == list(range(extent.first, 30))


def test_a_rewound_pipeline_holds_what_it_needs_again(home: Path, server: JournalServer) -> None:
    given = settings(server)
    [(end, _)] = all_batches(given)
    journal_id = next(iter(end))
    journals = Journals({SourceName("web"): given})
    journals.release({SourceName("web"): json.dumps(end)})
    journals.hold({SourceName("web"): {journal_id: 4}})
    found = registration_of(STORAGE, home, READER)
    assert found is not None
    assert (found.next, found.planned) == (4, 30)


def test_a_batch_waits_for_a_receiver_that_is_away(server: JournalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_endpoint, "ANSWER_BYTES", 200)
    journal = RemoteJournal(server.url, endpoint(patience_s=30.0))
    extent = journal.extent()
    assert extent is not None
    records = journal.read(0, 30, journal_id=extent.journal_id, at=None)
    assert next(records).sequence == 0
    server.stop()
    back = threading.Timer(0.2, server.start)
    back.start()
    assert [each.sequence for each in records] == list(range(1, 30))
    back.join()


def test_a_receiver_that_stays_away_is_told(server: JournalServer) -> None:
    server.stop()
    with pytest.raises(Retryable, match=r"The receiver at http://localhost:\d+ does not answer: .*refused"):
        stream(settings(server)).begin()
    [warning] = Journals({SourceName("web"): settings(server)}).release({})
    assert "does not answer" in warning


def test_a_damaged_answer_is_asked_for_again(server: JournalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    real, damaged = remote.records_in, [2]

    def damaging(data: bytes, next_: int, **more: Any) -> Any:
        if damaged[0]:
            damaged[0] -= 1
            data = data[:70] + bytes([data[70] ^ 1]) + data[71:]
        return real(data, next_, **more)

    monkeypatch.setattr(remote, "records_in", damaging)
    with pytest.raises(Retryable, match="sent what cannot be read: a frame with a wrong checksum where event 0 should be"):
        read(RemoteJournal(server.url, endpoint()), 0, 30)
    assert read(RemoteJournal(server.url, endpoint(patience_s=30.0)), 0, 30) == list(range(30))


def test_a_change_of_which_the_answer_was_lost_is_looked_at(server: JournalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = RemoteJournal(server.url, endpoint(patience_s=30.0))
    extent = journal.extent()
    assert extent is not None
    assert journal.hold(READER, extent, needed=3, planned=0)
    assert not journal.hold(READER, extent, needed=3, planned=0)
    real, lost = http.client.HTTPResponse.read, [1]

    def losing(response: http.client.HTTPResponse, *sizes: int) -> bytes:
        if lost[0]:
            lost[0] -= 1
            raise ConnectionResetError("lost")
        return real(response, *sizes)

    monkeypatch.setattr(http.client.HTTPResponse, "read", losing)
    assert journal.hold(READER, extent, needed=3, planned=0), "the lost answer may have said so"


def test_another_journal_at_that_address_is_refused(home: Path, server: JournalServer, tmp_path: Path) -> None:
    extent = RemoteJournal(server.url, endpoint()).extent()
    assert extent is not None
    push(tmp_path / "other", 0, 30)
    with JournalServer(tmp_path / "other") as other:
        with pytest.raises(LedgerMismatch, match=rf"and {extent.journal_id} was read before"):
            RemoteJournal(other.url, endpoint()).hold(READER, extent, needed=0, planned=0)
        with pytest.raises(LedgerMismatch, match=rf"and {extent.journal_id} was read before"):
            list(RemoteJournal(other.url, endpoint()).read(0, 3, journal_id=extent.journal_id, at=None))


def test_only_who_has_the_token_reads_and_registers(home: Path, server: JournalServer) -> None:
    for token in (None, "another"):
        journal = RemoteJournal(server.url, endpoint(token=token))
        with pytest.raises(Failed, match="does not take the token of the source"):
            journal.extent()
        with pytest.raises(Failed, match="does not take the token of the source"):
            journal.is_registered(READER)
    assert TOKEN not in repr(settings(server))


def test_an_authority_is_trusted_if_it_is_named(home: Path, tmp_path: Path) -> None:
    authority, certificate = tmp_path / "ca.pem", tmp_path / "server.pem"
    certify(authority, certificate)
    push(home, 0, 3)
    tls = {"certificate_file": str(certificate), "key_file": str(certificate)}
    with JournalServer(home, tls=tls) as server:
        assert read(RemoteJournal(server.url, endpoint(ca_file=str(authority))), 0, 3) == [0, 1, 2]
        with pytest.raises(Failed, match=r"is not trusted: .*certificate"):
            RemoteJournal(server.url, endpoint()).extent()
    with pytest.raises(Failed, match=r"The certificates for .* cannot be used"):
        RemoteJournal(server.url, endpoint(ca_file=str(tmp_path / "none.pem"))).extent()


def test_a_server_that_is_no_receiver_is_told(server: JournalServer) -> None:
    with pytest.raises(Failed, match="is no read endpoint of a receiver: HTTP 404"):
        RemoteJournal(f"{server.url}/elsewhere", endpoint()).extent()


WRONG = (
    ("GET", "/v1/journal/events?journal=j&first=-1&end=3", None, 400),
    ("GET", "/v1/journal/events?journal=j&first=3&end=3", None, 400),
    ("GET", "/v1/journal/events?first=0&end=3", None, 400),
    ("GET", f"/v1/journal/events?journal=j&first=0&end={'9' * 30}", None, 400),
    ("GET", "/v1/journal/batch", None, 400),
    ("GET", "/v1/journal/readers", None, 400),
    ("GET", "/v1/journal/../../etc/passwd", None, 404),
    ("POST", "/v1/journal", b"{}", 405),
    ("POST", "/v1/journal/readers", b"[" * 50_000, 400),
    ("POST", "/v1/journal/readers", b'{"act": "remove", "reader": "r"}', 400),
    ("POST", "/v1/journal/readers", b'{"act": "plan", "reader": "r", "journal": "j", "end": true}', 409),
    ("POST", "/v1/journal/readers", bytes(100_000), 413),
)


def test_what_is_wrong_is_refused(home: Path, server: JournalServer) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    for method, path, body, status in WRONG:
        connection.request(method, path, body, {"Authorization": f"Bearer {TOKEN}"})
        answer = connection.getresponse()
        assert (path, answer.status, answer.read() and status) == (path, status, status)
    connection.close()
    assert registration_of(STORAGE, home, "r") is None


def test_a_reader_plans_and_releases_only_what_is_there(home: Path, server: JournalServer) -> None:
    """Else whoever has the token could keep the receiver from starting."""
    journal = RemoteJournal(server.url, endpoint())
    extent = journal.extent()
    assert extent is not None
    with pytest.raises(Failed, match="HTTP 400: The request has no reader"):
        journal.begin("\ud800", extent, at_end=False)
    journal.begin(READER, extent, at_end=False)
    journal.plan(READER, extent, end=1 << 60)
    journal.release(READER, extent, below=1 << 60)
    found = registration_of(STORAGE, home, READER)
    assert found is not None
    assert (found.next, found.planned) == (30, 30)
