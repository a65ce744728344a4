"""Reading Spark's plans from their text. The texts are what Spark 4.3 prints."""

import pytest

from penstock.core.model import Guarantee, SourceName
from penstock.errors import Usage
from penstock.spec.pipeline import Trigger
from penstock.transform.guarantee import (
    StatefulOperator,
    operator_claims,
    option_claims,
    output_mode_claim,
    require_mode,
    stateful_operators,
    trigger_claim,
)
from penstock.transform.plan import PlanNode, parse_plan, source_order

A = "StreamingRelation FileSource[/in/a], [n#0, t#1, ts#2], name=<Unassigned>"
B = "StreamingRelation FileSource[/in/b], [n#3, t#4, ts#5], name=<Unassigned>"
RATE = "~StreamingRelationV2 org.x.RateStreamProvider@40640619, rate, org.x.RateStreamTable@1f, [], [timestamp#7, value#8L]"
LATE_A = f"""\
~EventTimeWatermark d3374f5e-b18d-49b8-a6f5-58706a308f92, ts#2: timestamp, 1 hours
+- ~SubqueryAlias a
   +- {A}"""
STATIC = "Relation [n#30,t#31] csv"


def indented(text: str, by: int) -> str:
    return text.replace("\n", "\n" + " " * by)


def above(operator: str, child: str = f"~SubqueryAlias a\n+- {A}") -> PlanNode:
    return parse_plan(f"{operator}\n+- {indented(child, 3)}")


def only(plan: PlanNode) -> StatefulOperator:
    (operator,) = stateful_operators(plan)
    return operator


def test_the_tree() -> None:
    plan = parse_plan(
        """\
~Union false, false
:- ~Project [n#3]
:  +- ~SubqueryAlias b
:     +- View (`b`, [n#3])
:        +- StreamingRelation FileSource[/in/b], [n#3]
+- ~Filter (t#1 = foo
Aggregate [x]
+- bar)
   +- Relation [n#0] csv
"""
    )

    assert [node.name for node in plan.walk()] == [
        "Union", "Project", "SubqueryAlias", "View", "StreamingRelation", "Filter", "Relation",
    ]  # fmt: skip
    assert [child.name for child in plan.children] == ["Project", "Filter"]
    assert plan.children[1].detail == "(t#1 = foo\nAggregate [x]\n+- bar)"
    assert [child.is_stream for child in plan.children] == [True, False]


@pytest.mark.parametrize("text", ["", "nothing of a plan", "   +- Project"])
def test_a_text_that_is_no_plan(text: str) -> None:
    with pytest.raises(Usage, match=r"Spark's plan"):
        parse_plan(text)


def order(plan: str, *names: str) -> list[str]:
    return list(source_order(parse_plan(plan), [SourceName(name) for name in names]))


def test_sources_in_the_order_of_the_plan() -> None:
    plan = f"~Union\n:- ~SubqueryAlias b\n:  +- {B}\n+- ~SubqueryAlias a\n   +- {A}"

    assert order(plan, "a", "b") == ["b", "a"]


def test_the_innermost_alias_that_is_a_source_counts() -> None:
    plan = f"~Join Inner\n:- ~SubqueryAlias b\n:  +- ~SubqueryAlias a\n:     +- {A}\n+- ~SubqueryAlias `odd name`\n   +- {B}"

    assert order(plan, "a", "b", "odd name") == ["a", "odd name"]


def test_one_relation_in_two_places_has_one_name_and_two_relations_have_two() -> None:
    again = A.replace("#0", "#10").replace("#1,", "#11,").replace("#2", "#12")

    assert order(f"~Union\n:- ~SubqueryAlias a\n:  +- {A}\n+- ~SubqueryAlias a\n   +- {A}", "a") == ["a", "a"]
    assert order(f"~Join\n:- ~SubqueryAlias a\n:  +- {A}\n+- ~SubqueryAlias a\n   +- {again}", "a") == ["a", "a#2"]


def test_streams_that_were_opened_elsewhere_get_a_name() -> None:
    assert order(f"~Union\n:- {RATE}\n+- ~SubqueryAlias a\n   +- {A}", "a") == ["source-1", "a"]


WINDOW = "~Aggregate [window#20-T3600000ms, t#1], [window#20-T3600000ms, t#1, count(1) AS count#15L]"
BETWEEN = "between(ts#2-T3600000ms, ts#5-T3600000ms, cast(ts#5-T3600000ms + INTERVAL '01' HOUR as timestamp))"
JOIN = f"~Join Inner, ((n#0 = n#3) AND {BETWEEN})"
SIDES = f":- ~SubqueryAlias a\n:  +- {A}\n+- ~SubqueryAlias b\n   +- {B}"


@pytest.mark.parametrize(
    ("plan", "name", "bounded"),
    [
        (above(WINDOW, LATE_A), "Aggregate", True),
        (above("~Aggregate [t#1], [t#1, count(1) AS c#13L]"), "Aggregate", False),
        (above("~Aggregate [n#0[t#1]], [first(ts#2-T3600000ms) AS ts#9]", LATE_A), "Aggregate", False),
        (above("~Aggregate [count(1) AS c#13L, array(1)[0] AS d#14]"), "Aggregate", True),
        (above("~Aggregate [max(ts#2-T3600000ms) AS m#9]", LATE_A), "Aggregate", True),
        (above("~Deduplicate [n#0]"), "Deduplicate", False),
        (above("~Deduplicate [n#0, ts#2-T3600000ms]", LATE_A), "Deduplicate", True),
        (above("~DeduplicateWithinWatermark [n#0]", LATE_A), "DeduplicateWithinWatermark", True),
        (above("~Distinct", f"~Project [n#0]\n+- {A}"), "Distinct", False),
        (above("~Distinct", f"~Project [ts#2-T3600000ms]\n+- {indented(LATE_A, 3)}"), "Distinct", True),
        (above("~GlobalLimit 5", f"~LocalLimit 5\n+- {A}"), "GlobalLimit", True),
        (parse_plan(f"{JOIN}\n{SIDES}"), "Join", True),
        (parse_plan(f"~Join Inner, (n#0 = n#3)\n{SIDES}"), "Join", False),
        (above("~FlatMapGroupsInPandasWithState fn(n#0)#40, [n#0], Append, NoTimeout"), "FlatMapGroupsInPandasWithState", None),
        (above("~TransformWithStateInPySpark f(n#0)#42, 1, [n#43], Append, NoTime"), "TransformWithStateInPySpark", None),
    ],
)
def test_stateful_operators(plan: PlanNode, name: str, bounded: bool | None) -> None:  # noqa: FBT001 - a column of the table
    assert (only(plan).name, only(plan).bounded) == (name, bounded)


@pytest.mark.parametrize(
    "plan",
    [
        parse_plan(f"~Project [n#0]\n+- {A}"),
        parse_plan(f"~Join Inner, (n#0 = n#30)\n:- {A}\n+- Aggregate [n#30], [n#30, count(1) AS c#34L]\n   +- {STATIC}"),
        above("~MapInPandas <lambda>(n#0)#44, [n#45], false"),
    ],
)
def test_operators_without_state(plan: PlanNode) -> None:
    assert stateful_operators(plan) == ()
    (claim,) = operator_claims(plan, output_mode="append")
    assert claim.guarantee is Guarantee.EXACTLY_ONCE


def test_user_code_without_timeouts_is_said() -> None:
    assert "nothing expires by itself" in only(above("~TransformWithStateInPySpark f(n#0)#42, [n#43], Append, NoTime")).what


@pytest.mark.parametrize(
    ("below", "random"),
    [
        ("~Project [n#0, uuid(Some(217)) AS u#29]", ("uuid",)),
        ("~Filter (rand(7) > 0.5)", ("rand",)),
        ("~Project [randstr(5, 12, true) AS a#1, uniform(0, 10, 4, true, Some(UTC)) AS b#2]", ("randstr", "uniform")),
        ("~Project [reflect(java.util.UUID, randomUUID, true) AS a#1]", ("reflect",)),
        ("~Project [uniformity(n#0) AS a#1, coalesce(reflection(n#0)) AS b#2]", ()),
        ("~Project [n#0, SPARK_PARTITION_ID() AS p#3]", ("spark_partition_id",)),
        ("~Sample 0.0, 0.5, false, 42", ("sample",)),
        ("~Project [brand(n#0) AS b#1, current_timestamp() AS now#2]", ()),
    ],
)
def test_values_that_change_at_a_replay_below_state(below: str, random: tuple[str, ...]) -> None:
    plan = above("~Deduplicate [n#0]", f"{below}\n+- {A}")
    (claim,) = operator_claims(plan, output_mode="append")

    assert only(plan).random == random
    assert (claim.guarantee is Guarantee.AT_LEAST_ONCE) is bool(random)
    assert bool(claim.remedy) is bool(random)


def test_values_that_change_above_state_do_not_matter() -> None:
    plan = above("~Project [n#0, rand(1) AS r#1]", f"~Deduplicate [n#0]\n+- {A}")

    assert only(plan).random == ()


def test_state_that_grows_for_ever_is_warned_about() -> None:
    (claim,) = operator_claims(above("~Deduplicate [n#0]"), output_mode="append")
    (whole,) = operator_claims(above(WINDOW, LATE_A), output_mode="complete")
    (fine,) = operator_claims(above(WINDOW, LATE_A), output_mode="update")

    assert "every distinct key, for ever" in claim.warnings[0]
    assert "In complete mode all groups are kept for ever" in whole.warnings[0]
    assert fine.warnings == ()


def test_output_modes_that_spark_would_refuse() -> None:
    counted, windowed, plain = above("~Aggregate [t#1], [t#1]"), above(WINDOW, LATE_A), above("~Project [n#0]")
    for plan, mode in ((counted, "update"), (counted, "complete"), (windowed, "append"), (plain, "append"), (plain, "update")):
        require_mode(plan, output_mode=mode)
    with pytest.raises(Usage, match="complete needs an aggregation"):
        require_mode(plain, output_mode="complete")
    with pytest.raises(Usage, match="aggregates without a watermark"):
        require_mode(counted, output_mode="append")


@pytest.mark.parametrize(
    ("trigger", "guarantee"),
    [
        ({"processing_time": "10s"}, Guarantee.EXACTLY_ONCE),
        ({"available_now": True}, Guarantee.EXACTLY_ONCE),
        ({"once": True}, Guarantee.EXACTLY_ONCE),
        ({"continuous": "1s"}, Guarantee.AT_LEAST_ONCE),
        ({"real_time": "5m"}, Guarantee.AT_LEAST_ONCE),
    ],
)
def test_triggers(trigger: dict[str, object], guarantee: Guarantee) -> None:
    claim = trigger_claim(Trigger(**trigger))

    assert claim.guarantee is guarantee
    assert claim.subject == f"trigger {next(iter(trigger))}"
    assert bool(claim.remedy) is (guarantee is Guarantee.AT_LEAST_ONCE)


def test_options_and_modes() -> None:
    (weak,) = option_claims({"asyncProgressTrackingEnabled": "true"})

    assert weak.guarantee is Guarantee.AT_LEAST_ONCE
    assert option_claims({}) == option_claims({"asyncProgressTrackingEnabled": "false"}) == ()
    for mode in ("append", "update", "complete"):
        assert output_mode_claim(mode).guarantee is Guarantee.EXACTLY_ONCE
