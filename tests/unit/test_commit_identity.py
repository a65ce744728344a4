"""What batch is this? Never answered by the number alone (bugs 2, 3, 20 and 24 of other systems)."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from penstock.commit.identity import recognise
from penstock.commit.summary import after_adoption, after_decision
from penstock.core.model import Adopted, Batch, BatchId, Decision, OffsetRange, Position, QueryId, SourceName, Summary
from penstock.errors import BatchForgotten, BatchGap, CheckpointReplaced, OffsetsConflict, Refused

QUERY, OTHER = QueryId("query"), QueryId("other")


def batch(number: int, *, query: QueryId = QUERY, start: str | None = "", end: str = "", content: str | None = None) -> Batch:
    offsets = OffsetRange(
        source=SourceName("events"),
        start=(str(number) if number else None) if start == "" else start,
        end=end or str(number + 1),
        content=content,
    )
    return Batch(query_id=query, batch_id=BatchId(number), offsets=(offsets,))


def decided(count: int) -> tuple[Summary, dict[int, Decision]]:
    summary, decisions = Summary(), {}
    for number in range(count):
        decisions[number] = Decision(batch=batch(number), staged=(), rows_in=0, schema="{}")
        summary = after_decision(summary, decisions[number], position=Position(number + 2))
    return summary, decisions


def known(count: int, *, retained: int = 100) -> Callable[[Batch], Decision | None]:
    summary, decisions = decided(count)
    kept = {number: decision for number, decision in decisions.items() if number >= count - retained}
    return lambda asked: recognise(asked, summary=summary, decision_of=kept.get)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_the_next_batch_is_new(count: int) -> None:
    assert known(count)(batch(count)) is None


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_decided_batch_is_known_by_query_id_and_offsets(number: int) -> None:
    found = known(3)(batch(number))
    assert found is not None
    assert found.batch == batch(number)


@pytest.mark.parametrize("number", range(5))
def test_another_query_id_is_refused_whatever_the_number_is(number: int) -> None:
    with pytest.raises(CheckpointReplaced, match=r"query query with batch 3.*query other") as caught:
        known(3)(batch(number, query=OTHER))
    assert "penstock adopt" in caught.value.remedy


@pytest.mark.parametrize(
    "asked",
    [
        batch(2, end="9"),
        batch(2, start="1"),
        batch(2, start=None),
        batch(2, content="changed"),
        replace(batch(2), offsets=()),
        replace(batch(2), offsets=batch(2).offsets * 2),
        replace(batch(2), offsets=(replace(batch(2).offsets[0], source=SourceName("renamed")),)),
        batch(0, end="2"),
    ],
)
def test_a_known_number_with_other_offsets_is_refused(asked: Batch) -> None:
    with pytest.raises(OffsetsConflict, match=rf"runs batch {asked.batch_id} with.*was decided with"):
        known(3)(asked)


@pytest.mark.parametrize("start", [None, "2", "4"])
def test_a_new_batch_that_does_not_adjoin_the_last_one_is_refused(start: str | None) -> None:
    with pytest.raises(OffsetsConflict, match="2 was decided up to events=3"):
        known(3)(batch(3, start=start))


@pytest.mark.parametrize(("count", "number"), [(3, 4), (3, 113_259), (0, 1), (0, 7)])
def test_a_jump_is_refused(count: int, number: int) -> None:
    with pytest.raises(BatchGap):
        known(count)(batch(number))


def test_a_batch_older_than_everything_retained_is_refused() -> None:
    assert known(9, retained=2)(batch(7)) is not None
    with pytest.raises(BatchForgotten):
        known(9, retained=2)(batch(6))


def adopted(query_id: QueryId | None, next_batch_id: int) -> Adopted:
    return Adopted(query_id=query_id, next_batch_id=BatchId(next_batch_id), reason="a test", operator="a test")


def test_an_adopted_checkpoint_goes_on_where_the_operator_said() -> None:
    summary = after_adoption(decided(3)[0], adopted(OTHER, 7), position=Position(9))

    def ask(asked: Batch) -> Decision | None:
        return recognise(asked, summary=summary, decision_of=lambda _: None)

    assert ask(batch(7, query=OTHER)) is None
    for wrong in (batch(3), batch(7), batch(8, query=OTHER), batch(6, query=OTHER)):
        with pytest.raises(Refused):
            ask(wrong)


def test_any_new_checkpoint_may_start_if_the_operator_said_so() -> None:
    summary = after_adoption(decided(3)[0], adopted(None, 0), position=Position(9))
    assert recognise(batch(0, query=OTHER), summary=summary, decision_of=lambda _: None) is None
    with pytest.raises(BatchGap, match="A new checkpoint was adopted, but Spark runs batch 3 of query query, expected batch 0"):
        recognise(batch(3), summary=summary, decision_of=lambda _: None)


def renamed(asked: Batch, *names: str) -> Batch:
    """Return `asked` with a source for each name, all with the offsets of its only one."""
    return replace(asked, offsets=tuple(replace(asked.offsets[0], source=SourceName(name)) for name in names))


@pytest.mark.parametrize(
    ("before", "now"),
    [(("0",), ("events",)), (("events",), ("0",)), (("0", "1"), ("events", "places")), (("0", "1"), ("places", "events"))],
)
def test_sources_that_had_only_their_places_for_names_may_get_some(before: tuple[str, ...], now: tuple[str, ...]) -> None:
    summary, decisions = decided(3)
    kept = {number: replace(each, batch=renamed(each.batch, *before)) for number, each in decisions.items()}
    for asked in (batch(2), batch(3)):
        assert recognise(renamed(asked, *now), summary=summary, decision_of=kept.get) == (kept.get(asked.batch_id))
    for asked in (batch(2, end="9"), batch(2, content="changed"), batch(3, start="2")):
        with pytest.raises(OffsetsConflict):
            recognise(renamed(asked, *now), summary=summary, decision_of=kept.get)


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (("0",), ("events", "places")),
        (("0", "1"), ("events",)),
        (("0", "1"), ("0", "2")),
        (("1",), ("events",)),
        (("events",), ("others",)),
    ],
)
def test_other_sources_are_not_taken_for_the_ones_at_their_places(before: tuple[str, ...], now: tuple[str, ...]) -> None:
    summary, decisions = decided(3)
    kept = {number: replace(each, batch=renamed(each.batch, *before)) for number, each in decisions.items()}
    with pytest.raises(OffsetsConflict):
        recognise(renamed(batch(2), *now), summary=summary, decision_of=kept.get)
