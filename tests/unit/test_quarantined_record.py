"""Records of the quarantine as values: their ids, their receipts, and which ones a replay takes."""

from collections import Counter
from typing import Any

import pytest

from penstock.core.bad_record import SCHEMA
from penstock.core.model import BatchId, Generation
from penstock.core.quarantined_record import EarlierRefusal, QuarantinedRecord, QuarantinedRows, records_in
from penstock.errors import Usage
from penstock.run.replay import Choice
from penstock.spark.schema import arrow_schema

NAMES = arrow_schema(SCHEMA).names


def row(**given: Any) -> dict[str, Any]:
    return dict.fromkeys(NAMES) | {"error": "expect.delay is not met"} | given


def file(batch: int | None, *rows: dict[str, Any], generation: int = 1) -> QuarantinedRows:
    number = None if batch is None else BatchId(batch)
    return QuarantinedRows(generation=None if batch is None else Generation(generation), batch=number, rows=rows)


def late(number: int, **given: Any) -> dict[str, Any]:
    return row(source="flights", rule="delay", file="in/a.csv", row=f'{{"id":{number}}}', **given)


def test_an_id_is_what_it_was_before_records_were_replayed() -> None:
    [record] = records_in([file(3, late(1))])
    assert record.id == "647b65a5ad90"
    assert record.key_text == f"g1-b3-{record.id}"


def test_as_many_equal_records_are_replayed_as_there_are_receipts() -> None:
    before = [file(0, late(1), late(1), late(1), late(2)), file(1, late(1))]
    key = records_in(before)[0].key_text
    found = records_in([*before, file(1, row(replayed=key), row(replayed=key), generation=2)])
    assert Counter((one.batch, one.row, one.replayed) for one in found) == Counter({
        (0, '{"id":1}', True): 2,
        (0, '{"id":1}', False): 1,
        (0, '{"id":2}', False): 1,
        (1, '{"id":1}', False): 1,
    })  # fmt: skip


def test_a_record_that_was_put_aside_again_has_its_history_and_another_id() -> None:
    [first] = records_in([file(0, late(1))])
    [again] = records_in([file(0, late(1, history=first.history_if_refused), generation=2)])
    assert again.history == (EarlierRefusal(generation=1, batch=0, id=first.id, error=first.error),)
    assert again.id != first.id
    [thrice] = records_in([file(0, late(1, history=again.history_if_refused), generation=3)])
    assert [each.id for each in thrice.history] == [first.id, again.id]


def test_a_record_in_a_file_that_tells_no_batch_has_no_mark() -> None:
    [record] = records_in([file(None, late(1))])
    assert (record.key_text, record.batch, record.replayed) == (None, None, False)


def records() -> "list[QuarantinedRecord]":
    refused = row(sink="lake", row='{"id":9}', error="the route gives 'XXX', which is no account")
    bad = row(source="kafka", topic="t", partition=0, offset=7, undecodable="value", error="no schema with id 9")
    marked = records_in([file(0, late(5))])[0].key_text
    return list(
        records_in([file(0, late(1), late(5), bad), file(1, late(2), refused), file(0, row(replayed=marked), generation=2)])
    )


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (Choice(), [None, '{"id":1}', '{"id":2}', '{"id":9}']),
        (Choice(batch=1), ['{"id":2}', '{"id":9}']),
        (Choice(reason="delay"), ['{"id":1}', '{"id":2}']),
        (Choice(reason="lake"), ['{"id":9}']),
        (Choice(reason="undecodable"), [None]),
        (Choice(reason="Schema With ID 9"), [None]),
        (Choice(reason="delay", batch=1), ['{"id":2}']),
        (Choice(reason="nothing of the kind"), []),
        (Choice(batch=7), []),
    ],
)
def test_a_replay_takes_what_is_chosen_and_not_replayed(choice: Choice, expected: list[str | None]) -> None:
    assert sorted((one.row for one in choice.of(records())), key=str) == expected


def test_a_replay_takes_records_by_their_ids() -> None:
    known = records()
    wanted = next(one for one in known if one.row == '{"id":2}')
    assert Choice(ids=(wanted.id,)).of(known) == [wanted]
    done = next(one for one in known if one.replayed)
    assert Choice(ids=(done.id,)).of(known) == []
    with pytest.raises(Usage, match="no record with the id") as raised:
        Choice(ids=(wanted.id[:-1] + "x",)).of(known)
    assert wanted.id in raised.value.remedy
