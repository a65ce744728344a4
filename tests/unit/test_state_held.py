"""What the stateful operators of a plan keep, told from the plan's text: equal for the same query, whatever Spark numbers it."""

import pytest

from penstock.transform.plan import parse_plan
from penstock.transform.state_held import LONGEST, StateHeld, aggregate_calls, state_held

STREAM = "+- StreamingRelation FileSource[/in], [id#{0}, shop#{1}, at#{2}, amount#{3}], name=<Unassigned>"


def held(*lines: str, numbers: tuple[int, ...] = (1, 2, 3, 4)) -> tuple[StateHeld, ...]:
    depth = len(lines) - 1
    text = "\n".join(f"{'   ' * (at - 1)}{'+- ' if at else ''}{line}" for at, line in enumerate(lines))
    return state_held(parse_plan(f"{text}\n{'   ' * depth}{STREAM}".format(*numbers)))


def one(*lines: str, numbers: tuple[int, ...] = (1, 2, 3, 4)) -> StateHeld:
    [found] = held(*lines, numbers=numbers)
    return found


TOTALS = "Aggregate [shop#{1}], [shop#{1}, sum(amount#{3}) AS total#9L]"


def test_an_aggregation() -> None:
    assert one(TOTALS) == StateHeld(kind="stateStoreSave", keys="[shop]", holds="sum(amount)")
    assert one(TOTALS) == one(TOTALS, numbers=(51, 52, 53, 54))


def test_names_and_expressions_of_the_result_are_not_kept() -> None:
    assert one("Aggregate [shop#{1}], [shop#{1} AS s#8, (sum(amount#{3}) * cast(100 as bigint)) AS t#9L]") == one(TOTALS)
    renamed = ("Aggregate [s#7], [s#7, sum(a#8) AS total#9L]", "Project [shop#{1} AS s#7, amount#{3} AS a#8]")
    assert one(*renamed) == one(TOTALS)


@pytest.mark.parametrize(
    "other",
    [
        "Aggregate [id#{0}], [id#{0}, sum(amount#{3}) AS total#9L]",
        "Aggregate [shop#{1}, id#{0}], [shop#{1}, sum(amount#{3}) AS total#9L]",
        "Aggregate [shop#{1}], [shop#{1}, sum(id#{0}) AS total#9L]",
        "Aggregate [shop#{1}], [shop#{1}, max(amount#{3}) AS total#9L]",
        "Aggregate [shop#{1}], [shop#{1}, sum(amount#{3}) AS total#9L, count(1) AS n#10L]",
        "Aggregate [sum(amount#{3}) AS total#9L]",
        "Deduplicate [shop#{1}]",
    ],
)
def test_what_is_another_state(other: str) -> None:
    assert one(other) != one(TOTALS)


def test_a_window_is_known_by_what_it_is_computed_of() -> None:
    """In the text of the aggregation itself it is a column `window`, however long it is."""

    def counted(width: int, mark: str = "-T600000ms") -> StateHeld:
        by = f"Aggregate [window#7{mark}], [window#7{mark} AS w#8{mark}, count(1) AS c#9L]"
        step = f"(precisetimestampconversion(at#{{2}}{mark}, TimestampType, LongType) % {width})"
        window = f"named_struct(start, {step}, end, ({step} + {width}))"
        return one(by, f"Project [{window} AS window#7{mark}, id#{{0}}, at#{{2}}{mark}]")

    assert counted(300_000_000) != counted(600_000_000)
    assert counted(300_000_000) == counted(300_000_000, mark="-T60000ms"), "a delay is no part of the state"
    assert len(counted(300_000_000).keys) <= LONGEST + 30


def test_operators_in_their_order_and_what_the_text_does_not_tell() -> None:
    both = held("Deduplicate [shop#{1}]", TOTALS)
    assert [each.kind for each in both] == ["dedupe", "stateStoreSave"]
    assert one("FlatMapGroupsWithState $line, Update").opaque == 1
    assert held("Project [id#{0}]") == ()


def test_the_calls_of_aggregate_functions() -> None:
    results = ", [(sum(CASE WHEN (a#1 > 0) THEN b#2 END) / count(1)) AS x#3, sum(CASE WHEN (a#1 > 0) THEN b#2 END) AS y#4]"
    assert aggregate_calls(results) == ("sum(CASE WHEN (a#1 > 0) THEN b#2 END)", "count(1)")
    assert aggregate_calls("[concat(summary(a#1), x) AS b#2]") == ()


def test_the_zone_of_the_machine_makes_no_other_key() -> None:
    def keyed(zone: str) -> StateHeld:
        parsed = f"from_json(StructField(id,IntegerType,true), cast(shop#{{1}} as string), Some({zone}), false).id AS k#7"
        return one("Deduplicate [k#7]", f"Project [{parsed}, {', '.join('id#{0}' for _ in range(40))}]")

    assert keyed("UTC") == keyed("Europe/Berlin") == keyed("Etc/GMT+3") == keyed("+01:00")
    assert keyed("yyyy-MM-dd") != keyed("UTC")
