"""The files of a journal, byte by byte: what was once acknowledged must be read for ever. A golden file is never changed."""

from pathlib import Path
from zlib import crc32

import pytest

from penstock.errors import FormatTooNew
from penstock.journal.event import Event, Record
from penstock.journal.format import (
    DurableNote,
    Numbered,
    Registration,
    SegmentHeader,
    SegmentIndex,
    decode_header,
    decode_index,
    decode_note,
    decode_registration,
    encode_header,
    encode_index,
    encode_note,
    encode_registration,
)
from penstock.journal.frame import encode_frame, seed_of
from penstock.journal.segment import Segment, scan
from penstock.journal.storage import LocalStorage
from penstock.receive.packet_ids import Unreleased, decode_unreleased, encode_unreleased

GOLDEN = Path(__file__).with_name("golden_journal")
ID = "0123456789abcdef"
HEADER = SegmentHeader(
    journal_id=ID,
    first=7,
    created_at_us=1_700_000_000_000_000,
    producers={"sensor-1": Numbered(number=41, sequence=6, received_at_us=1_699_999_999_999_999)},
)
EVENTS = (
    Event(
        value=b'{"t": 21.5}', key=b"kitchen", headers=(("type", b"json"),), producer="sensor-1", number=42, remote="10.0.0.1:5000"
    ),
    Event(value=b""),
)
RECEIVED = (1_700_000_000_000_001, -1)


def segment_bytes() -> bytes:
    frames = [
        encode_frame(event, sequence=at, durable=7, received_at_us=time_us, seed=seed_of(ID))
        for at, (event, time_us) in enumerate(zip(EVENTS, RECEIVED, strict=True), 7)
    ]
    return encode_header(HEADER) + b"".join(frames)


def test_a_segment_of_version_1_is_read_and_written_as_ever() -> None:
    data = (GOLDEN / "segment-1.log").read_bytes()
    line = data[: data.index(b"\n") + 1]
    assert decode_header(line, where="It") == HEADER
    segment = Segment(path=GOLDEN / "segment-1.log", header=HEADER, begin=len(line))
    assert [located.frame.record for located in scan(LocalStorage(), segment)] == [
        Record(sequence=at, received_at_us=time_us, event=event)
        for at, (event, time_us) in enumerate(zip(EVENTS, RECEIVED, strict=True), 7)
    ]
    assert segment_bytes() == data


def test_the_documents_of_version_1_are_read_and_written_as_ever() -> None:
    index = SegmentIndex(journal_id=ID, first=7, end=9, size_bytes=456, checksum=0xFFFFFFFF, places=((7, 200), (8, 330)))
    registration = Registration(reader="clicks/web", journal_id=ID, next=8, planned=9, released_at_us=1_700_000_000_000_002)
    note = DurableNote(next=9, segment=7, offset=456)
    unreleased = Unreleased(journal_id=ID, broker="b:1883", client_id="c", next=9, packet_ids=(1, 65535))
    golden = {path.stem: path.read_bytes() for path in GOLDEN.iterdir()}
    assert golden.keys() == {"segment-1", "index-1", "reader-1", "durable-1", "mqtt-1"}
    assert (decode_unreleased(golden["mqtt-1"], where="It"), encode_unreleased(unreleased)) == (unreleased, golden["mqtt-1"])
    assert (decode_index(golden["index-1"], where="It"), encode_index(index)) == (index, golden["index-1"])
    assert (decode_registration(golden["reader-1"], where="It"), encode_registration(registration)) == (
        registration,
        golden["reader-1"],
    )
    assert (decode_note(golden["durable-1"], where="It"), encode_note(note)) == (note, golden["durable-1"])


def test_a_newer_version_is_told() -> None:
    newer = encode_header(HEADER)[9:-1].replace(b'"version":1', b'"version":2')
    with pytest.raises(FormatTooNew, match="version 2 of format"):
        decode_header(b"%08x %s\n" % (crc32(newer), newer), where="It")
