"""Every durable value survives the way to bytes and back, and what is not one is refused."""

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.codec import decode_document, decode_entry, decode_marker, encode_document, encode_entry, encode_marker
from penstock.core.high_water_mark import MarkedFile, Marker
from penstock.core.model import (
    DIGEST_MODULUS,
    Adopted,
    Batch,
    Decided,
    Decision,
    Entry,
    OffsetRange,
    Opened,
    Position,
    Removal,
    RemovalAccepted,
    RowDigest,
    Staged,
    Summary,
    Totals,
)
from penstock.errors import FormatTooNew, LedgerMismatch
from penstock.testing.entries import decided_entry, opened_entry

text = st.text(st.characters(), max_size=12)  # surrogates and NUL too: offsets and names are whatever a source says
number = st.integers(-(2**63), 2**63)
json_value = st.recursive(
    st.none() | st.booleans() | number | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)
totals = st.builds(Totals, rows=number, files=number, size_bytes=number, digest=st.integers(0, DIGEST_MODULUS - 1))
offsets = st.builds(OffsetRange, source=text, start=st.none() | text, end=st.none() | text, content=st.none() | text)
batch = st.builds(Batch, query_id=text, batch_id=number, offsets=st.lists(offsets, max_size=3).map(tuple))
piece = st.builds(
    Staged,
    sink=text,
    account=text,
    name=text,
    attempt=text,
    totals=totals,
    ref=st.dictionaries(text, json_value, max_size=3),
    inline=st.none() | st.binary(max_size=40),
)
decision = st.builds(
    Decision,
    batch=batch,
    staged=st.lists(piece, max_size=3).map(tuple),
    rows_in=number,
    schema=text,
    stage_ms=number,
    previous_publish_ms=st.none() | number,
    stage_requests=st.none() | number,
    previous_publish_requests=st.none() | number,
)
opened = st.builds(
    Opened,
    owner=text,
    checkpoint=text,
    pipeline_digest=text,
    sinks=st.lists(text, max_size=3).map(tuple),
    versions=st.dictionaries(text, text, max_size=3),
)
adopted = st.builds(Adopted, query_id=st.none() | text, next_batch_id=number, reason=text, operator=text)
sums = st.dictionaries(text, st.dictionaries(text, totals, max_size=2), max_size=2)
removal = st.builds(
    Removal,
    sink=text,
    account=text,
    decided=st.lists(st.tuples(number, number), max_size=3).map(tuple),
    files=st.lists(text, max_size=3).map(tuple),
    totals=totals,
    unchecked=totals,
)
removal_accepted = st.builds(RemovalAccepted, removals=st.lists(removal, max_size=3).map(tuple), reason=text, operator=text)
summary = st.builds(
    Summary,
    query_id=st.none() | text,
    next_batch_id=st.none() | number,
    decided_at=st.none() | number,
    published_at=st.none() | number,
    adopted_at=st.none() | number,
    totals=sums,
)
named = st.builds(replace, summary, ledger_id=text, row_digest=st.sampled_from(RowDigest))
entry_value = st.builds(
    Entry,
    pipeline=text,
    position=number,
    generation=number,
    nonce=text,
    written_at_ms=number,
    body=st.builds(Decided, decision=decision) | opened | adopted,
    summary=summary,
)
removal_entry = st.builds(
    lambda entry, body, summary, removed, at: replace(
        entry, body=body, summary=replace(summary, removed=removed, removed_at=Position(at))
    ),
    entry_value,
    removal_accepted | opened | adopted | st.builds(Decided, decision=decision),
    named,
    sums,
    number,
)
dropped_rows = st.dictionaries(text, st.dictionaries(text, number, max_size=2), min_size=1, max_size=2)
dropping_entry = st.builds(
    lambda entry, decision, dropped: replace(
        entry,
        body=Decided(decision=replace(decision, dropped=dropped)),
        summary=replace(entry.summary, dropped=dropped),
    ),
    removal_entry,
    decision,
    dropped_rows,
)
marker_value = st.builds(
    Marker,
    pipeline=text,
    sink=text,
    account=text,
    position=number,
    generation=number,
    query_id=text,
    batch_id=number,
    files=st.none() | st.lists(st.builds(MarkedFile, name=text, rows=number, size_bytes=number), max_size=3).map(tuple),
)


@settings(deadline=None)
@given(entry_value | removal_entry | dropping_entry)
def test_an_entry_comes_back_as_it_was(value: Entry) -> None:
    data = encode_entry(value)
    assert decode_entry(data) == value
    assert encode_entry(decode_entry(data)) == data


@settings(deadline=None)
@given(marker_value)
def test_a_marker_comes_back_as_it_was(value: Marker) -> None:
    data = encode_marker(value)
    assert decode_marker(data) == value
    assert encode_marker(decode_marker(data)) == data


@settings(deadline=None)
@given(st.dictionaries(text.filter(lambda name: name not in {"format", "version"}), json_value, max_size=4), st.integers(1, 9))
def test_a_document_comes_back_as_it_was(fields: dict[str, Any], version: int) -> None:
    data = encode_document("a.kind", version, fields)
    assert decode_document(data, kind="a.kind", newest=9, where="It") == (version, fields)


def test_equal_values_give_equal_bytes_whatever_the_order_of_their_mappings() -> None:
    one, other = opened_entry(), opened_entry()
    assert isinstance(one.body, Opened)
    versions = {"b": "1", "a": "2", "c": "3"}

    def data(order: dict[str, str]) -> bytes:
        body = Opened(owner="o", checkpoint="c", pipeline_digest="d", sinks=(), versions=order)
        return encode_entry(
            Entry(
                pipeline=one.pipeline,
                position=one.position,
                generation=one.generation,
                nonce=one.nonce,
                written_at_ms=0,
                body=body,
                summary=Summary(),
            )
        )

    assert data(versions) == data(dict(sorted(versions.items())))
    assert encode_entry(one) != encode_entry(other)


def _fields(data: bytes) -> dict[str, Any]:
    return dict(json.loads(data))


def _damaged_removals(fields: dict[str, Any]) -> list[dict[str, Any]]:
    sums = {"rows": 1, "files": 1, "size_bytes": 1, "digest": "0000000000000001"}
    one = {"sink": "lake", "account": "a", "decided": [[1, 2]], "files": ["x"], "totals": sums, "unchecked": sums}
    identity = {"ledger_id": "5e" * 16, "row_digest": "xxhash64", "removed": {"lake": {"a": sums}}, "removed_at": 3}

    def removing(**changes: Any) -> dict[str, Any]:
        body = {"kind": "removal_accepted", "removals": [{**one, **changes}], "reason": "old", "operator": "ann"}
        return {**fields, "version": 6, "body": body, "summary": {**fields["summary"], **identity}}

    decode_entry(json.dumps(removing()).encode())
    broken = ({"decided": [[1]]}, {"decided": [1, 2]}, {"decided": [[1, "2"]]}, {"files": [None]})
    return [*(removing(**changes) for changes in broken), {**removing(), "version": 5}]


def _damaged() -> list[bytes]:
    good = encode_entry(decided_entry(after=opened_entry()))
    fields = _fields(good)
    decided = fields["body"]["decision"]
    piece = decided["staged"][0]

    def reading(topics: Any, gaps: Any) -> dict[str, Any]:
        more = {"stage_requests": None, "previous_publish_requests": None, "topics": topics, "gaps": gaps}
        return {**fields, "version": 3, "body": {"kind": "decided", "decision": {**decided, **more}}}

    topic = {"source": "s", "topic": "t", "topic_id": "id", "partitions": {"0": [0, 1, 0, 1]}}
    gap = {"kind": "expired", "source": "s", "topic": "t", "topic_id": "id", "partition": 0, "first": 0, "end": 1}
    decode_entry(json.dumps(reading([topic], [gap])).encode())

    def with_piece(**changes: Any) -> dict[str, Any]:
        return {**fields, "body": {"kind": "decided", "decision": {**decided, "staged": [{**piece, **changes}]}}}

    broken: list[Any] = [
        [],
        {**fields, "format": "penstock.marker"},
        {**fields, "format": None},
        {**fields, "version": 0},
        {**fields, "version": "1"},
        {**fields, "version": True},
        {**fields, "version": 2},
        {**fields, "body": {"kind": "decided", "decision": {**decided, "stage_requests": 1, "previous_publish_requests": 1}}},
        {**fields, "version": 3},
        reading({}, []),
        reading([{**topic, "partitions": {"0": [0, 1, 0]}}], []),
        reading([{**topic, "partitions": {"first": [0, 1, 0, 1]}}], []),
        reading([topic], [{**gap, "kind": "mislaid"}]),
        reading([topic], [{**gap, "end": None}]),
        {**fields, "position": "1"},
        {**fields, "position": True},
        {**fields, "position": 1.0},
        {**fields, "generation": None},
        {**fields, "foreign": 1},
        {name: value for name, value in fields.items() if name != "summary"},
        {**fields, "body": {"kind": "undecided"}},
        {**fields, "body": None},
        {**fields, "body": {**fields["body"], "foreign": 1}},
        {**fields, "body": {"kind": "decided", "decision": {**decided, "staged": {}}}},
        *_damaged_removals(fields),
        with_piece(inline="not base64!"),
        with_piece(inline=7),
        with_piece(ref=[]),
        with_piece(totals={**piece["totals"], "digest": 7}),
        with_piece(totals={**piece["totals"], "digest": "7"}),
        with_piece(totals={**piece["totals"], "digest": "000000000000000G"}),
    ]
    torn = [good[:size] for size in range(0, len(good), 37)]
    return [*torn, b"\x00" * 64, good[:40] + b"\xff" + good[41:], *(json.dumps(value).encode() for value in broken)]


@pytest.mark.parametrize("data", _damaged())
def test_damage_is_refused_with_the_place(data: bytes) -> None:
    with pytest.raises(LedgerMismatch, match="Entry 7 of the ledger is damaged or not of Penstock") as caught:
        decode_entry(data, where="Entry 7 of the ledger")
    assert caught.value.remedy


def test_a_newer_version_is_told_apart_from_damage_whatever_its_fields_are() -> None:
    data = json.dumps({"format": "penstock.entry", "version": 13, "all": "new"}).encode()
    with pytest.raises(FormatTooNew, match=r"version 13 of format penstock\.entry, but this Penstock reads versions up to 12"):
        decode_entry(data)


def test_a_marker_is_no_entry() -> None:
    with pytest.raises(LedgerMismatch, match=r"expected format penstock\.marker, found 'penstock\.entry'"):
        decode_marker(encode_entry(opened_entry()))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_json_cannot_hold_is_refused_before_it_is_durable(value: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        encode_document("a.kind", 1, {"value": value})


def test_the_names_of_the_frame_are_reserved() -> None:
    with pytest.raises(ValueError, match="belong to the document"):
        encode_document("a.kind", 1, {"version": 3})


def test_a_constant_that_is_no_json_is_damage() -> None:
    with pytest.raises(LedgerMismatch):
        decode_document(b'{"format":"a.kind","version":1,"value":NaN}', kind="a.kind", newest=1, where="It")
