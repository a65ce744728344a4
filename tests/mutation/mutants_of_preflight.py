"""Bugs planted in what a changed pipeline file is taken for."""

from tests.mutation.mutant import Mutant

COMPARE = "src/penstock/run/preflight/compare.py"
UNIT = "tests/unit/test_preflight.py"
RULINGS = "tests/unit/test_preflight_rulings.py"
TABLES = "tests/unit/test_preflight_of_tables.py"

MUTANTS_OF_PREFLIGHT = (
    Mutant(
        bug=63,
        name="times-of-a-history-are-taken-for-those-of-another-column",
        file="src/penstock/run/preflight/sink_rules.py",
        find='    if key in _OF_HISTORIES and "history" in before and "history" in now:\n',
        replace='    if key == "key" and "history" in before and "history" in now:\n',
        tests=(f"{TABLES}::test_a_table_keeps_how_its_versions_are_told_apart",),
    ),
    Mutant(
        bug=63,
        name="one-table-in-a-directory-goes-on-where-many-were",
        file=COMPARE,
        find="            if self._is_filled(name) and _names_other(key, before, now):\n",
        replace='            if key == "table" and self._is_filled(name) and _names_other(key, before, now):\n',
        tests=(f"{TABLES}::test_what_is_filled_cannot_be_elsewhere",),
    ),
    Mutant(
        bug=63,
        name="the-file-of-an-older-run-is-taken-for-the-last-one",
        file="src/penstock/run/preflight/description.py",
        find="if (run.generation, run.ledger_id) == (generation, ledger_id):",
        replace="if True:",
        tests=(f"{UNIT}::test_an_older_run_is_never_taken_for_the_last_one",),
    ),
    Mutant(
        bug=63,
        name="plans-of-two-versions-of-spark-are-compared-by-their-text",
        file="src/penstock/run/preflight/query_rules.py",
        find="elif before is not None and same_spark:",
        replace="elif before is not None:",
        tests=(f"{UNIT}::test_plans_are_compared_by_their_text_under_one_spark_only",),
    ),
    Mutant(
        bug=63,
        name="a-run-does-not-ask-what-changed",
        file="src/penstock/run/startable.py",
        find="            compare(settings, plan, ledger, summary=tail.summary).require_startable()\n",
        replace="",
        tests=(f"{UNIT}::test_a_run_is_refused_before_spark_starts",),
    ),
    Mutant(
        bug=63,
        name="keys-of-an-aggregation-are-not-compared",
        file="src/penstock/run/preflight/query_rules.py",
        find='(("keys", "keys", old.keys, new.keys), ',
        replace="(",
        tests=(f"{UNIT}::test_the_verdict[keys of the aggregation reordered]",),
    ),
    Mutant(
        bug=63,
        name="a-batch-that-a-sink-is-owed-is-not-asked-for",
        file="src/penstock/run/preflight/sink_rules.py",
        find="    if unsettled is not None and name in unsettled.sinks:\n",
        replace="    if False:\n",
        tests=(f"{UNIT}::test_a_batch_that_may_not_be_in_its_sinks_yet",),
    ),
    Mutant(
        bug=63,
        name="another-zone-of-the-machine-is-another-key",
        file="src/penstock/transform/state_held.py",
        find='_ZONE.sub("Some(zone)", _whole(text, definitions))',
        replace="_whole(text, definitions)",
        tests=("tests/unit/test_state_held.py::test_the_zone_of_the_machine_makes_no_other_key",),
    ),
    Mutant(
        bug=63,
        name="a-quarantine-may-be-anywhere",
        file=COMPARE,
        find='        if is_place_of_quarantine(key) and "quarantine.url" in before:\n',
        replace="        if False:\n",
        tests=(f"{UNIT}::test_a_quarantine_that_holds_rows_is_a_place_like_a_sink",),
    ),
    Mutant(
        bug=63,
        name="notes-about-what-was-answered-are-left-behind",
        file=COMPARE,
        find="        noting = next((name for name, sink in self.settings.sinks.items() if isinstance(sink, HTTP)), None)\n",
        replace="        noting = None\n",
        tests=(f"{UNIT}::test_a_spool_in_which_a_sink_notes_what_was_answered_has_to_come_along",),
    ),
    Mutant(
        bug=63,
        name="files-are-read-from-another-directory",
        file="src/penstock/run/preflight/source_rules.py",
        find="    if before and now and not _PATTERN.search(now) and not _is_below(before, now):\n",
        replace="    if False:\n",
        tests=(f"{UNIT}::test_the_verdict[path]",),
    ),
    Mutant(
        bug=63,
        name="a-directory-whose-name-begins-alike-is-above-another",
        file="src/penstock/run/preflight/source_rules.py",
        find='plain.startswith(f"{whole}/")',
        replace="plain.startswith(whole)",
        tests=(f"{RULINGS}::test_another_path_of_files[begins alike]",),
    ),
    Mutant(
        bug=63,
        name="what-a-sink-refuses-of-its-own-rows-is-called-safe",
        file="src/penstock/run/preflight/query_rules.py",
        find=r"|sinks\.{re.escape(name)}\.(?:select|exclude)(?:\..*)?",
        replace="",
        tests=(f"{RULINGS}::test_what_a_sink_refuses_is_the_ruling_on_its_own_columns_and_on_all",),
    ),
    Mutant(
        bug=63,
        name="files-of-a-sink-come-to-lie-in-other-partitions",
        file="src/penstock/run/preflight/sink_rules.py",
        find='    if key == "partition_by" and has_rows:\n',
        replace="    if False:\n",
        tests=(f"{RULINGS}::test_other_partitions[parquet-True-breaks]", f"{UNIT}::test_the_verdict[directories of the lake]"),
    ),
    Mutant(
        bug=63,
        name="check-does-not-ask-the-marker-whether-rows-go-on",
        file="src/penstock/sink/table/sql_sink.py",
        find="        if markers is not None:\n            content = partial(self._content_there",
        replace="        if False:\n            content = partial(self._content_there",
        tests=("tests/attack/test_decided_columns.py::test_a_start_works_or_says_how[sqlite-rows_lose_a_column-published]",),
    ),
    Mutant(
        bug=63,
        name="rules-change-under-a-batch-that-spark-computes-once-more",
        file="src/penstock/run/preflight/query_rules.py",
        find='    if part == "expect":\n',
        replace="    if False:\n",
        tests=(f"{UNIT}::test_a_batch_that_spark_still_computes_for_its_state_keeps_its_rows",),
    ),
)
