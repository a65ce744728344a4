"""Bugs planted where markers in databases name the ledger that they are of."""

from tests.mutation.mutant import Mutant

MARKER = "src/penstock/sink/table/marker.py"
MARKS = "src/penstock/sink/table/marker_store.py"
PUBLICATION = "src/penstock/sink/table/publication.py"
PARQUET = "src/penstock/sink/parquet/publishing.py"
DECISIONS = "src/penstock/commit/publication.py"
SERVER = "src/penstock/sink/table/database_sink.py"

OF_SQLITE = "tests/conformance/test_sqlite_conformance.py::TestSqlite"
OF_DUCKDB = "tests/conformance/test_duckdb_conformance.py::TestDuckdb"
OF_PARQUET = "tests/conformance/test_parquet_conformance.py::TestParquet"
OF_OLDER = "tests/live/test_older_markers.py"

SIGNATURES = "src/penstock/run/ledger_match.py"
SIGNING = "src/penstock/sink/spool/place.py"
SPOOL = "src/penstock/sink/spool/spool.py"

OF_PLACES = "tests/unit/test_marker_owners.py"
OF_KINDS = "tests/attack/test_two_kinds_of_sinks.py::test_a_table_of_a_sink_of_one_kind_is_refused_to_the_other"
OF_SIGNATURES = "tests/live/test_run_signatures.py"
OF_UPGRADE = "tests/attack/test_decided_columns.py::test_a_decision_of_an_older_penstock_is_outstanding_when_this_one_starts"

MUTANTS_OF_IDENTITY = (
    Mutant(
        bug=31,
        name="who-has-pruned-the-position-of-a-spools-signature-owns-it",
        file=SIGNATURES,
        find="    if signature.ledger_id is not None and signature.ledger_id != identity_of(tail):\n",
        replace="    if False:\n",
        tests=(f"{OF_SIGNATURES}::test_another_ledger_is_refused_whatever_it_has_at_that_position[directory]",),
    ),
    Mutant(
        bug=31,
        name="two-ledgers-that-sign-a-spool-at-once-stage-there-both",
        file=SIGNING,
        find="    if foreign is not None:\n",
        replace="    if False:\n",
        tests=(f"{OF_SIGNATURES}::test_of_two_ledgers_that_begin_at_once_neither_sweeps_what_the_other_one_staged[directory]",),
    ),
    Mutant(
        bug=31,
        name="a-spool-that-another-ledger-signed-is-swept",
        file=SPOOL,
        find="        if any(is_of_another(",
        replace="        if False and any(is_of_another(",
        tests=(f"{OF_SIGNATURES}::test_of_two_ledgers_that_begin_at_once_neither_sweeps_what_the_other_one_staged[directory]",),
    ),
    Mutant(
        bug=31,
        name="a-spool-that-could-not-be-signed-takes-a-batch",
        file=SIGNING,
        find="    if all(one.ledger_id != ledger_id for one in found):\n",
        replace="    if False:\n",
        tests=(f"{OF_SIGNATURES}::test_a_spool_that_could_not_be_signed_takes_no_batch[directory]",),
    ),
    Mutant(
        bug=31,
        name="a-spool-whose-sweep-fails-is-not-signed",
        file="src/penstock/commit/upkeep.py",
        find="        if isinstance(sink, HasStaging):",
        replace="        if isinstance(sink, HasStaging) and not warnings:",
        tests=(f"{OF_SIGNATURES}::test_a_spool_is_signed_where_its_sweep_fails[directory]",),
    ),
    Mutant(
        bug=31,
        name="a-table-under-another-spelling-of-its-name-is-nobodys",
        file=MARKS,
        find="len({*map(self._split_name, names)}) == 1",
        replace="len({*names}) == 1",
        tests=("tests/live/test_served_table.py::test_a_table_belongs_to_one_sink_however_it_is_named[postgres-public.t]",),
    ),
    Mutant(
        bug=31,
        name="a-table-in-other-letters-is-nobodys",
        file="src/penstock/sink/dbapi/database.py",
        find='    return "", name.lower()',
        replace='    return "", name',
        tests=("tests/unit/test_dbapi_sink.py::test_a_table_of_another_sink_is_refused_in_other_letters_too",),
    ),
    Mutant(
        bug=31,
        name="status-looks-at-no-marker",
        file="src/penstock/observe/status.py",
        find="        if worst is None:",
        replace="        if True:",
        tests=(f"{OF_PLACES}::test_a_home_that_did_not_fill_the_sinks_says_so[of_another-foreign]",),
    ),
    Mutant(
        bug=31,
        name="a-table-takes-what-another-ledger-decided",
        file=PUBLICATION,
        find="    require_same_ledger(marker, publication)\n",
        replace="",
        tests=(
            f"{OF_SQLITE}::test_of_two_homes_that_begin_at_once_the_first_one_that_publishes_delivers[SqliteRig-0]",
            f"{OF_DUCKDB}::test_of_two_homes_that_begin_at_once_the_first_one_that_publishes_delivers[SpooledRig-0]",
        ),
    ),
    Mutant(
        bug=31,
        name="a-batch-at-the-same-position-is-anybodys",
        file=PUBLICATION,
        find="    require_same_ledger(marker, publication)\n    require_no_older_copy(marker, since)\n",
        replace="    require_no_older_copy(marker, since)\n    if marker.position < publication.position:\n"
        "        require_same_ledger(marker, publication)\n",
        tests=(f"{OF_SQLITE}::test_of_two_homes_that_begin_at_once_the_first_one_that_publishes_delivers[RidingRig-0]",),
    ),
    Mutant(
        bug=31,
        name="a-marker-is-written-without-its-ledger",
        file=MARKER,
        find='        "ledger_id": marker.ledger_id,\n',
        replace='        "ledger_id": None,\n',
        tests=(f"{OF_SQLITE}::test_a_marker_of_an_older_penstock_is_taken_over_once[SqliteRig]",),
    ),
    Mutant(
        bug=31,
        name="a-marker-is-read-without-its-ledger",
        file=MARKS,
        find="marker_from(row, pipeline, sink, ledger_id=row[-1])",
        replace="marker_from(row, pipeline, sink)",
        tests=(f"{OF_DUCKDB}::test_of_two_homes_that_publish_at_once_exactly_one_delivers[SpooledRig-same]",),
    ),
    Mutant(
        bug=29,
        name="markers-of-an-older-penstock-are-not-altered",
        file=SERVER,
        find="                self._add_ledger_id(connection)\n",
        replace="                pass\n",
        tests=(f"{OF_OLDER}::test_it_is_altered_once_and_then_of_one_ledger[duckdb]",),
    ),
    Mutant(
        bug=29,
        name="markers-of-an-older-penstock-are-read-as-if-they-were-altered",
        file=MARKS,
        find="statements.read() if has_ledger_id else statements.read_without_ledger_id",
        replace="statements.read()",
        tests=(f"{OF_OLDER}::test_it_is_read_as_it_is[sqlite]",),
    ),
    Mutant(
        bug=29,
        name="an-older-penstock-is-not-kept-from-a-marker-with-an-identity",
        file=MARKER,
        find="1 if marker.ledger_id is None else NAMED",
        replace="1",
        tests=("tests/unit/test_sqlite_marker.py::test_a_marker_with_an_identity_is_refused_by_an_older_penstock",),
    ),
    Mutant(
        bug=29,
        name="pieces-of-an-older-penstock-lack-what-is-demanded-of-them",
        file=PUBLICATION,
        find='    if "write" not in ref:\n',
        replace="    if not publication.staged:\n",
        tests=(f"{OF_UPGRADE}[sqlite-recover-by key]",),
    ),
    Mutant(
        bug=29,
        name="an-outstanding-decision-of-the-first-formats-is-not-read",
        file="src/penstock/core/codec/entry.py",
        find="for version in range(_PLAIN, _BESIDE + 1)}",
        replace="for version in range(_NAMED, _BESIDE + 1)}",
        tests=(f"{OF_UPGRADE}[sqlite-start-append]",),
    ),
    Mutant(
        bug=29,
        name="a-ledger-of-an-older-penstock-gets-no-identity",
        file="src/penstock/commit/summary.py",
        find="    return before if before.ledger_id is not None else replace(before, ledger_id=new_ledger_id())",
        replace="    return before",
        tests=(f"{OF_UPGRADE}[sqlite-start-append]",),
    ),
    Mutant(
        bug=31,
        name="a-table-takes-what-a-copy-of-its-ledger-decided",
        file=PUBLICATION,
        find='    require_no_copy(publication, marker.position, place=f"Table {marker.table_name!r}")\n',
        replace="",
        tests=(f"{OF_SQLITE}::test_of_a_ledger_and_its_copy_one_delivers_a_batch[SqliteRig]",),
    ),
    Mutant(
        bug=31,
        name="an-account-takes-what-a-copy-of-its-ledger-decided",
        file=PARQUET,
        find='            require_no_copy(self.publication, marker.position, place=f"Account {self.account!r}")\n',
        replace="",
        tests=(f"{OF_PARQUET}::test_of_a_ledger_and_its_copy_one_delivers_a_batch[rename]",),
    ),
    Mutant(
        bug=31,
        name="a-publication-does-not-say-which-decision-it-follows",
        file=DECISIONS,
        find="        previous=_previous(entry, sink),\n",
        replace="",
        tests=(f"{OF_DUCKDB}::test_of_a_ledger_and_its_copy_one_delivers_a_batch[SpooledRig]",),
    ),
    Mutant(
        bug=17,
        name="a-table-of-the-native-sink-is-filled-by-any-driver-too",
        file="src/penstock/sink/dbapi/preparation.py",
        find="    if marker is None and has(session",
        replace="    if False and has(session",
        tests=(f"{OF_KINDS}[sqlite-native-first]",),
    ),
    Mutant(
        bug=17,
        name="a-table-behind-any-driver-is-filled-by-sqlite-too",
        file="src/penstock/sink/sqlite/sink.py",
        find="if self._table_schema(connection, DBAPI_MARKER_TABLE) is not None:",
        replace="if False:",
        tests=(f"{OF_KINDS}[sqlite-any-driver-first]",),
    ),
    *(
        Mutant(
            bug=17,
            name=f"a-table-behind-any-driver-is-filled-by-{kind}-too",
            file=f"src/penstock/sink/{file}.py",
            find=find,
            replace=replace,
            tests=(f"{OF_KINDS}[{kind}-any-driver-first]",),
        )
        for kind, file, find, replace in (
            ("mysql", "mysql/sink", "if self._table_schema(connection, DBAPI_MARKER_TABLE) is not None:", "if False:"),
            ("postgres", "postgres/sink", "in connection.execute(sql.DBAPI_SCHEMAS).fetchall():", "in ():"),
        )
    ),
)
