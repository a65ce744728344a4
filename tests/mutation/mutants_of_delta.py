"""Bugs planted in the sink of Delta tables."""

from tests.mutation.mutant import Mutant

LOG = "src/penstock/sink/delta/log.py"
PUBLICATION = "src/penstock/sink/delta/publication.py"
SINK = "src/penstock/sink/delta/sink.py"
STATISTICS = "src/penstock/sink/delta/statistics.py"
TABLE_SCHEMA = "src/penstock/sink/delta/table_schema.py"

SUITE = "tests/conformance/test_delta_conformance.py::TestDelta"
UNIT = "tests/unit/test_delta_sink.py"
MARKER = f"{UNIT}::TestTheMarkerIsComparedAndSet"
LIBRARY = f"{UNIT}::TestWhatTheLibraryWouldAccept"
TABLES = "tests/unit/test_delta_tables.py"
STARTS = f"{TABLES}::TestStarts"

MUTANTS_OF_DELTA = (
    Mutant(
        bug=9,
        name="delta-commits-on-another-snapshot-than-the-one-whose-marker-was-read",
        file=LOG,
        find="                self.table.create_write_transaction(\n",
        replace="                DeltaTable(self.place.uri).create_write_transaction(\n",
        tests=(f"{MARKER}::test_a_commit_on_a_snapshot_from_before_another_one_fails[plain]",),
    ),
    Mutant(
        bug=9,
        name="delta-commits-files-without-the-marker",
        file=LOG,
        find="app_transactions=list(_versions(publication))",
        replace="app_transactions=[]",
        tests=(f"{SUITE}::test_publishing_again_changes_nothing[plain]",),
    ),
    Mutant(
        bug=9,
        name="delta-does-not-compare-the-marker-before-a-commit",
        file=PUBLICATION,
        find="        if marker.position < publication.position:\n",
        replace="        if True:\n",
        tests=(f"{SUITE}::test_publishing_again_changes_nothing[plain]",),
    ),
    Mutant(
        bug=2,
        name="delta-takes-any-marker-ahead-for-its-own-batch",
        file=PUBLICATION,
        find="        self._require_same_batch(snapshot, marker)\n",
        replace="",
        tests=(f"{SUITE}::test_a_position_of_another_ledger_is_not_taken_for_published[plain]",),
    ),
    Mutant(
        bug=31,
        name="delta-moves-the-marker-of-another-ledger",
        file=PUBLICATION,
        find="if marker.ledger_id not in {None, publication.ledger_id}:",
        replace="if False:",
        tests=(f"{MARKER}::test_a_marker_outlives_its_log[plain]",),
    ),
    Mutant(
        bug=31,
        name="delta-keeps-no-identity-in-the-log",
        file=LOG,
        find="    if publication.ledger_id is not None:\n        digits",
        replace="    if False:\n        digits",
        tests=(f"{MARKER}::test_a_marker_outlives_its_log[plain]",),
    ),
    Mutant(
        bug=31,
        name="delta-claims-a-table-whose-marker-is-another-ledgers",
        file=SINK,
        find="if marker is not None and marker.ledger_id not in {None, ledger_id}:",
        replace="if False:",
        tests=(f"{STARTS}::test_staging_that_is_lost_between_two_runs_is_made_anew",),
    ),
    Mutant(
        bug=31,
        name="delta-publishes-beside-a-copy-of-the-ledger",
        file=PUBLICATION,
        find='            require_no_copy(publication, marker.position, place=f"The Delta table {self.log.uri}")\n',
        replace="",
        tests=(f"{SUITE}::test_of_a_ledger_and_its_copy_one_delivers_a_batch[plain]",),
    ),
    Mutant(
        bug=1,
        name="delta-fills-an-older-copy-of-its-table",
        file=PUBLICATION,
        find="        if found < self.since:\n",
        replace="        if False:\n",
        tests=(f"{MARKER}::test_an_older_copy_under_a_run_that_goes_on_is_noticed[plain]",),
    ),
    Mutant(
        bug=10,
        name="delta-takes-a-commit-that-raised-for-one-that-did-not-land",
        file=PUBLICATION,
        find="        except (Conflict, OutcomeUnknown) as failure:\n            return failure\n",
        replace="        except Conflict as failure:\n            return failure\n",
        tests=(f"{MARKER}::test_a_commit_that_landed_and_raised_is_not_repeated[plain]",),
    ),
    Mutant(
        bug=12,
        name="delta-commits-files-that-are-not-there",
        file=PUBLICATION,
        find="        self._require_there()\n",
        replace="",
        tests=(f"{LIBRARY}::test_a_file_of_another_size[plain]",),
    ),
    Mutant(
        bug=30,
        name="delta-commits-partition-values-that-nobody-can-parse",
        file=PUBLICATION,
        find="        column.value_in(directory",
        replace="        str(directory",
        tests=(f"{LIBRARY}::test_a_partition_value_that_readers_cannot_parse[value-partitioned]",),
    ),
    Mutant(
        bug=30,
        name="delta-commits-files-with-a-value-for-another-column",
        file=PUBLICATION,
        find="    if list(values) != [column.name for column in columns]:\n",
        replace="    if False:\n",
        tests=(f"{LIBRARY}::test_a_partition_value_that_readers_cannot_parse[column-partitioned]",),
    ),
    Mutant(
        bug=12,
        name="delta-commits-statistics-that-are-no-json",
        file=PUBLICATION,
        find="        json.loads(statistics)\n",
        replace="",
        tests=(f"{LIBRARY}::test_statistics_that_are_no_json[plain]",),
    ),
    Mutant(
        bug=35,
        name="delta-commits-into-a-table-with-other-columns",
        file=PUBLICATION,
        find="            require_fit(table, publication.schema",
        replace="            (lambda *given, **named: None)(table, publication.schema",
        tests=(f"{LIBRARY}::test_a_table_that_was_altered_under_a_decided_batch[plain]",),
    ),
    Mutant(
        bug=32,
        name="delta-fills-a-table-that-maps-its-columns",
        file=TABLE_SCHEMA,
        find='    if table.properties.get(_COLUMN_MAPPING, "none") != "none":\n',
        replace="    if False:\n",
        tests=(f"{TABLES}::test_tables_that_are_refused[column mapping]",),
    ),
    Mutant(
        bug=32,
        name="delta-fills-a-table-with-any-feature",
        file=TABLE_SCHEMA,
        find="sorted(table.features - _FEATURES)",
        replace="()",
        tests=(f"{TABLES}::test_tables_that_are_refused[the feature clustering]",),
    ),
    Mutant(
        bug=37,
        name="delta-fills-a-table-with-rows-of-others",
        file=SINK,
        find='        if found is not None:\n            raise Refused(\n                f"The Delta table',
        replace='        if False:\n            raise Refused(\n                f"The Delta table',
        tests=(f"{STARTS}::test_a_table_with_rows_of_others",),
    ),
    Mutant(
        bug=19,
        name="a-commit-of-delta-counts-before-it-is-durable",
        file="src/penstock/sink/delta/place.py",
        find='                    _sync_file(f"{log}/{version:020d}.json")\n',
        replace="                    pass\n",
        tests=(f"{MARKER}::test_a_commit_is_durable_before_it_counts[plain]",),
    ),
    Mutant(
        bug=43,
        name="the-upper-bound-of-a-text-in-delta-is-cut-off",
        file=STATISTICS,
        find="return value if len(value) <= _CHARACTERS else None",
        replace="return value[:_CHARACTERS]",
        tests=(f"{UNIT}::test_statistics_bound_the_values_and_nothing_else",),
    ),
    Mutant(
        bug=43,
        name="the-upper-bound-of-a-time-in-delta-is-rounded-down",
        file=STATISTICS,
        find="    if up and rounded < value:\n",
        replace="    if False:\n",
        tests=(f"{UNIT}::test_statistics_bound_the_values_and_nothing_else",),
    ),
    Mutant(
        bug=34,
        name="verify-of-delta-reads-a-name-for-a-path",
        file="src/penstock/sink/delta/verification.py",
        find="            return self._area.open(unquote(path))\n",
        replace="            raise\n",
        tests=(f"{UNIT}::TestBesideOthers::test_compaction_and_vacuum_beside_a_pipeline[partitioned]",),
    ),
    Mutant(
        bug=11,
        name="delta-makes-a-table-in-a-store-that-ignores-conditions",
        file=SINK,
        find="                self._log.place.prove()\n",
        replace="",
        tests=(f"{TABLES}::test_a_store_that_ignores_conditions_is_refused_before_a_table_is_made",),
    ),
    Mutant(
        bug=19,
        name="delta-makes-another-commit-durable-than-its-own",
        file=LOG,
        find="            self.table.update_incremental()\n            landed = self.version\n",
        replace="            landed = self.version + 1\n",
        tests=(f"{MARKER}::test_a_commit_behind_somebody_elses_is_durable_too[plain]",),
    ),
)
