"""Bugs planted in what becomes of rows that do not meet a rule, and of those that a sink cannot take."""

from tests.mutation.mutant import Mutant

STAGED, OF_SPEC = "tests/unit/test_quarantine_stage.py", "tests/unit/test_spec_rules.py"
UNION = "tests/spark/test_rules.py::test_a_union_of_a_source_with_itself_has_each_row_in_quarantine_once"
EACH = f"{STAGED}::test_each_sink_gets_the_rows_that_it_can_take_and_the_quarantine_gets_the_others"

MUTANTS_OF_RULES = (
    Mutant(
        bug=17,
        name="a-row-meets-a-rule-that-is-null",
        file="src/penstock/spec/rule.py",
        find="WHEN NOT coalesce(({rule.sql}\\n), false) THEN",
        replace="WHEN NOT ({rule.sql}\\n) THEN",
        tests=(f"{OF_SPEC}::test_the_first_rule_that_is_not_met_counts_and_null_does_not_meet_one",),
    ),
    Mutant(
        bug=17,
        name="rows-that-do-not-meet-a-rule-are-delivered-too",
        file="src/penstock/transform/rules.py",
        find='    return rows.where(f"({violated_sql(rules)}) IS NULL")\n',
        replace="    return rows\n",
        tests=(UNION,),
    ),
    Mutant(
        bug=17,
        name="a-line-that-does-not-fit-is-in-quarantine-and-delivered",
        file="src/penstock/source/open.py",
        find="with_all_columns_read(name, source, rows), source.expect)",
        replace="rows, source.expect)",
        tests=("tests/spark/test_rules.py::test_a_line_that_does_not_fit_the_schema_is_on_one_side",),
    ),
    Mutant(
        bug=17,
        name="rows-of-a-union-of-a-source-with-itself-are-in-quarantine-twice",
        file="src/penstock/stage/rules.py",
        find="        for each in once.values():\n",
        replace="        for each in ranges:\n",
        tests=(UNION,),
    ),
    Mutant(
        bug=17,
        name="what-a-rule-dropped-is-not-in-the-decision",
        file="src/penstock/run/batch_stager.py",
        find="            dropped=violations.dropped,\n",
        replace="",
        tests=(UNION,),
    ),
    Mutant(
        bug=17,
        name="what-rules-dropped-in-earlier-batches-is-forgotten",
        file="src/penstock/commit/summary.py",
        find="        dropped=sum_of(before.dropped, decision.dropped),\n",
        replace="        dropped=decision.dropped,\n",
        tests=(f"{STAGED}::test_the_ledger_counts_what_was_dropped_ever",),
    ),
    Mutant(
        bug=17,
        name="rows-that-do-not-meet-a-rule-are-found-and-not-put-aside",
        file="src/penstock/stage/quarantine.py",
        find="for each in (None if bad is None else bad.for_sink, violations.aside) if each is not None]",
        replace="for each in (None if bad is None else bad.for_sink,) if each is not None]",
        tests=(f"{STAGED}::test_rows_against_a_rule_are_put_aside",),
    ),
    Mutant(
        bug=17,
        name="a-row-that-a-sink-cannot-take-is-delivered-as-well",
        file="src/penstock/stage/staging.py",
        find="for place in range(rows.num_rows) if place not in found]",
        replace="for place in range(rows.num_rows)]",
        tests=(EACH,),
    ),
    Mutant(
        bug=17,
        name="rows-that-a-sink-cannot-take-are-staged-and-not-decided",
        file="src/penstock/stage/combining.py",
        find="    for sink, stager in stage_pass.stagers.items():\n",
        replace="    for sink, stager in ((share.sink, share.stager) for share in stage_pass.shares):\n",
        tests=(EACH,),
    ),
    Mutant(
        bug=17,
        name="the-quarantine-forgets-what-went-there-in-the-last-hour",
        file="src/penstock/commit/recent_rows.py",
        find="            low, before = middle, entry\n",
        replace="            low, before = middle, tail\n",
        tests=(f"{STAGED}::test_the_rows_of_the_last_hour_are_those_of_the_entries_written_since",),
    ),
    Mutant(
        bug=28,
        name="rows-that-a-rule-dropped-then-enter-the-state-now",
        file="src/penstock/run/batch_stager.py",
        find="        if dropped != delivered.dropped:\n",
        replace="        if False:\n",
        tests=("tests/spark/test_rules.py::test_a_decided_batch_does_not_enter_the_state_by_other_rules",),
    ),
    Mutant(
        bug=17,
        name="one-bad-row-hides-the-bad-rows-behind-it",
        file="src/penstock/sink/spool/writer.py",
        find="    later = refused_rows(rows.slice(half), check)\n",
        replace="    later = {}\n",
        tests=(f"{STAGED}::test_few_refused_rows_are_found_in_many_by_few_checks",),
    ),
)
