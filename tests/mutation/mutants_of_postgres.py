"""Bugs planted in the sink and in the ledger of PostgreSQL, and in what it shares with that of MySQL."""

from tests.mutation.mutant import Mutant

SESSION = "src/penstock/sql/session.py"
ENGINE = "src/penstock/sink/table/sql_sink.py"
SERVED_LEDGER = "src/penstock/ledger/database.py"
LEDGER_STATEMENTS = "src/penstock/ledger/postgres.py"
MARKS = "src/penstock/sink/table/marker_store.py"
MEMBERS = "src/penstock/sql/postgres/members.py"
MOVE = "src/penstock/sink/postgres/load.py"
SHAPE = "src/penstock/sink/postgres/table_schema.py"
SINK = "src/penstock/sink/postgres/sink.py"
STATEMENTS = "src/penstock/sink/postgres/statements.py"

OF_LEDGER = "tests/conformance/test_ledger_conformance.py"
OF_SERVED_LEDGER = "tests/live/test_ledger_served.py"
OF_MEMBERS = "tests/live/test_postgres_members.py"
OF_MERGE = "tests/live/test_served_merge.py"
OF_PUBLISHING = "tests/live/test_postgres_publish.py"
OF_RIDING = "tests/live/test_served_ride.py"
OF_SERVED = "tests/live/test_served"
OF_TABLES = "tests/live/test_postgres_table.py"

MUTANTS_OF_POSTGRES = (
    Mutant(
        bug=7,
        name="a-row-that-deletes-is-upserted-in-postgres",
        file=STATEMENTS,
        find="""chosen = f"{self._insert_chosen(casts, last=True)}{self._stays('s')}\"""",
        replace="chosen = self._insert_chosen(casts, last=True)",
        tests=(f"{OF_SERVED}_table.py::test_keys_that_come_again_and_again[postgres-0-delete]",),
    ),
    Mutant(
        bug=7,
        name="a-row-that-deletes-in-postgres-is-not-counted",
        file=STATEMENTS,
        find="{self._or_deletes('s')}",
        replace="",
        tests=(f"{OF_SERVED}_table.py::test_keys_that_come_again_and_again[postgres-0-delete]",),
    ),
    Mutant(
        bug=7,
        name="the-marker-of-postgres-is-read-and-not-locked",
        file=STATEMENTS,
        find='for_update = " FOR UPDATE"',
        replace='for_update = ""',
        tests=(f"{OF_SERVED}_publish.py::test_a_zombie_that_holds_the_marker_open_loses_to_the_first_that_commits[postgres]",),
    ),
    Mutant(
        bug=15,
        name="rows-and-marker-are-two-transactions-of-postgres",
        file=MARKS,
        find="        with self._marking():\n",
        replace="""\
        self._execute("COMMIT", {})
        self._execute("BEGIN", {})
        with self._marking():
""",
        tests=(f"{OF_SERVED}_publish.py::test_after_any_fault_the_next_try_shows_the_batch_once[postgres-mark-error]",),
    ),
    Mutant(
        bug=15,
        name="a-commit-of-postgres-without-an-answer-is-taken-for-done",
        file=SESSION,
        find="            raise OutcomeUnknown(",
        replace="            return\n            raise OutcomeUnknown(",
        tests=(f"{OF_SERVED}_publish.py::test_after_a_commit_without_an_answer_the_marker_decides[postgres-append-after]",),
    ),
    Mutant(
        bug=16,
        name="an-older-generation-fills-a-table",
        file="src/penstock/sink/table/publication.py",
        find="    _require_no_older_generation(marker, publication)\n",
        replace="",
        tests=(f"{OF_SERVED}_publish.py::test_a_generation_that_was_overtaken_cannot_commit[postgres]",),
    ),
    Mutant(
        bug=17,
        name="nobody-counts-the-rows-that-postgres-took",
        file=MOVE,
        find="        return Loaded(rows=connection.execute(statements.insert_cast(casts)).rowcount, displaced=Totals())\n",
        replace="        connection.execute(statements.insert_cast(casts))\n"
        "        return Loaded(rows=staged, displaced=Totals())\n",
        tests=(f"{OF_PUBLISHING}::test_a_trigger_that_drops_rows_is_noticed_and_nothing_is_shown[numeric]",),
    ),
    Mutant(
        bug=17,
        name="what-was-copied-to-postgres-counts-as-taken",
        file=MOVE,
        find="        return cursor.rowcount\n",
        replace="        return int(first.num_rows)\n",
        tests=(f"{OF_PUBLISHING}::test_a_trigger_that_drops_rows_is_noticed_and_nothing_is_shown[bigint]",),
    ),
    Mutant(
        bug=17,
        name="rows-are-copied-into-columns-of-other-types",
        file="src/penstock/sink/postgres/storage.py",
        find='    return bare == staged or (staged == "text" and bare in _SENT_AS_TEXT)\n',
        replace="    return bool(bare)\n",
        tests=("tests/live/test_postgres_storage.py::test_values_come_back_from_other_columns_that_will_do",),
    ),
    Mutant(
        bug=17,
        name="rows-are-copied-past-a-rule",
        file=MOVE,
        find=" or table_schema.rules:",
        replace=":",
        tests=(f"{OF_PUBLISHING}::test_a_rule_holds_as_for_any_insert",),
    ),
    Mutant(
        bug=17,
        name="a-column-that-was-altered-is-not-looked-at-again",
        file=ENGINE,
        find="        self._tables.require_fit(connection, table_schema, rows, target, decided=True)\n",
        replace="",
        tests=(f"{OF_PUBLISHING}::test_a_column_that_was_altered_since_would_change_values_and_is_refused",),
    ),
    Mutant(
        bug=17,
        name="a-table-is-looked-at-and-not-held",
        file="src/penstock/sink/postgres/table_schema.py",
        find="{statements.hold()}; {query}",
        replace="SELECT 1; {query}",
        tests=(f"{OF_PUBLISHING}::test_a_column_that_is_altered_while_the_table_is_waited_for_is_seen_as_it_is_then",),
    ),
    Mutant(
        bug=17,
        name="the-first-of-several-rows-with-one-key-counts",
        file=STATEMENTS,
        find="{'max' if last else 'min'}",
        replace="min",
        tests=(f"{OF_SERVED}_table.py::test_keys_that_come_again_and_again[postgres-0-upsert]",),
    ),
    Mutant(
        bug=17,
        name="a-row-that-came-in-meanwhile-is-replaced-uncounted",
        file=MOVE,
        find="    if row[1] + deleted != replaced.rows:\n",
        replace="    if row[1] + deleted < replaced.rows:\n",
        tests=(f"{OF_PUBLISHING}::test_a_key_that_another_session_inserts_meanwhile_is_counted_anew",),
    ),
    Mutant(
        bug=1,
        name="rows-ride-after-the-decision-on-a-server",
        file=SERVED_LEDGER,
        find="""\
            if within is not None:
                within(connection)
            with self._settling(), self._committing():
                self._commit(connection)
""",
        replace="""\
            with self._settling(), self._committing():
                self._commit(connection)
            if within is not None:
                within(connection)
""",
        tests=(f"{OF_RIDING}::test_rows_marker_and_decision_are_one_transaction[mysql]",),
    ),
    Mutant(
        bug=7,
        name="a-pruned-position-is-free-again-on-a-server",
        file=SERVED_LEDGER,
        find="        if newest[0] != entry.position:",
        replace="        if not newest:",
        tests=(f"{OF_LEDGER}::test_pruned_entries_are_gone_and_their_positions_stay_taken[postgres]",),
    ),
    Mutant(
        bug=15,
        name="an-append-to-postgres-without-an-answer-is-told-as-never-done",
        file=SESSION,
        find="            raise OutcomeUnknown(",
        replace="            raise Failed(",
        tests=(f"{OF_SERVED_LEDGER}::test_a_commit_without_an_answer_is_unknown_and_then_read_back[postgres-before]",),
    ),
    Mutant(
        bug=16,
        name="an-occupied-position-is-overwritten-in-postgres",
        file=LEDGER_STATEMENTS,
        find="ON CONFLICT DO NOTHING RETURNING position",
        replace="ON CONFLICT (pipeline, position) DO UPDATE SET entry = excluded.entry RETURNING position",
        tests=(f"{OF_LEDGER}::test_an_occupied_position_is_taken_and_keeps_its_first_entry[postgres]",),
    ),
    Mutant(
        bug=5,
        name="a-connection-to-postgres-is-used-on-after-an-error",
        file="src/penstock/support/connection.py",
        find="        except BaseException:\n            self.drop()\n            raise\n",
        replace="        except BaseException:\n            raise\n",
        tests=(f"{OF_SERVED_LEDGER}::test_a_rider_that_fails_leaves_neither_rows_nor_entry[postgres]",),
    ),
    Mutant(
        bug=11,
        name="nobody-races-for-a-position-on-a-server",
        file=SERVED_LEDGER,
        find="            self._prove_writers(",
        replace="            (lambda **_: None)(",
        tests=(f"{OF_SERVED_LEDGER}::test_a_table_that_loses_entries_is_refused[postgres-a trigger]",),
    ),
    Mutant(
        bug=17,
        name="sql-of-the-user-is-not-tried-in-postgres",
        file=SINK,
        find="        rehearse(connection, rows, self._target)\n\n    def _dry_run_unprepared",
        replace="        pass\n\n    def _dry_run_unprepared",
        tests=(f"{OF_MERGE}::test_a_second_statement_in_one_is_refused_by_the_server_itself[postgres]",),
    ),
    Mutant(
        bug=17,
        name="what-was-tried-stays-in-postgres",
        file=STATEMENTS,
        find="ROLLBACK TO SAVEPOINT penstock_rehearsal",
        replace="RELEASE SAVEPOINT penstock_rehearsal",
        tests=(f"{OF_MERGE}::test_what_was_tried_is_taken_back[postgres]",),
    ),
    Mutant(
        bug=15,
        name="sql-of-the-user-may-begin-with-anything",
        file="src/penstock/sink/table/script.py",
        find="        if word is None or word[0].upper() not in syntax.starts:\n",
        replace="        if word is None:\n",
        tests=("tests/unit/test_table_script.py::test_a_statement_of_another_kind_is_refused_wherever_it_is",),
    ),
    Mutant(
        bug=17,
        name="rows-that-only-the-user-knows-are-read-again",
        file="src/penstock/sink/table/database_sink.py",
        find="        if marker.write == MERGE:\n",
        replace='        if marker.write == "none":\n',
        tests=(f"{OF_MERGE}::test_verify_compares_the_marker_with_the_ledger_and_leaves_the_rows_to_their_owner[postgres]",),
    ),
    Mutant(
        bug=32,
        name="an-unlogged-partition-takes-rows",
        file=MEMBERS,
        find='        if member.kind == "table" and not member.logged:\n',
        replace="        if False:\n",
        tests=(f"{OF_MEMBERS}::test_what_a_member_does_not_keep_is_refused_before_the_start",),
    ),
    Mutant(
        bug=32,
        name="only-direct-partitions-are-looked-at",
        file=MEMBERS,
        find="    UNION SELECT i.inhrelid, i.inhparent FROM pg_catalog.pg_inherits i JOIN below b ON i.inhparent = b.oid\n",
        replace="",
        tests=(f"{OF_MEMBERS}::test_what_a_member_does_not_keep_is_refused_before_the_start",),
    ),
    Mutant(
        bug=32,
        name="partitions-in-other-databases-take-rows",
        file=MEMBERS,
        find='        if member.kind not in {"table", "partitioned table"}:\n',
        replace="        if False:\n",
        tests=(f"{OF_MEMBERS}::test_what_a_member_does_not_keep_is_refused_before_the_start",),
    ),
    Mutant(
        bug=32,
        name="a-partition-attached-meanwhile-is-not-looked-at",
        file=MOVE,
        find="    if table_schema.is_partitioned:\n        _require_lasting_partitions(connection, target.table)\n",
        replace="",
        tests=(f"{OF_MEMBERS}::test_a_partition_that_is_attached_while_rows_are_written_is_looked_at_too",),
    ),
    Mutant(
        bug=32,
        name="a-partition-may-refuse-what-the-table-takes",
        file=SHAPE,
        find="    if table_schema.is_partitioned and target.merge is None:",
        replace="    if False:",
        tests=(f"{OF_MEMBERS}::test_what_a_member_does_not_keep_is_refused_before_the_start",),
    ),
    Mutant(
        bug=32,
        name="a-key-is-looked-up-in-tables-that-inherit",
        file=SHAPE,
        find="    if table_schema.has_members:\n",
        replace="    if False:\n",
        tests=(f"{OF_MEMBERS}::test_no_key_is_unique_across_tables_that_inherit",),
    ),
    Mutant(
        bug=32,
        name="rows-that-a-policy-hides-are-not-missed",
        file=SHAPE,
        find="    if row is not None and row[0]:\n",
        replace="    if False:\n",
        tests=(f"{OF_MEMBERS}::test_what_a_member_does_not_keep_is_refused_before_the_start",),
    ),
    Mutant(
        bug=32,
        name="a-marker-may-be-unlogged",
        file=SINK,
        find="            if table_schema is not None:\n                tables.require_lasting(",
        replace="            if False:\n                tables.require_lasting(",
        tests=(f"{OF_MEMBERS}::test_tables_of_our_own_are_logged_too",),
    ),
    Mutant(
        bug=17,
        name="a-column-of-postgres-takes-different-keys-for-equal",
        file=SHAPE,
        find="        if column.collation is not None:\n",
        replace="        if False:\n",
        tests=(f"{OF_TABLES}::test_a_key_that_took_different_texts_for_equal_is_exact_after_what_is_told",),
    ),
    Mutant(
        bug=17,
        name="an-index-of-postgres-takes-different-keys-for-equal",
        file=SHAPE,
        find="        if names == frozenset(target.key):\n",
        replace="        if False:\n",
        tests=(f"{OF_TABLES}::test_a_key_that_took_different_texts_for_equal_is_exact_after_what_is_told",),
    ),
    Mutant(
        bug=32,
        name="a-rule-sends-rows-elsewhere",
        file="src/penstock/sink/postgres/table_schema.py",
        find="        if rule.is_instead and",
        replace="        if False and",
        tests=("tests/attack/test_decided_tables.py::test_a_decided_batch_goes_where_no_rule_sends_it[postgres]",),
    ),
    Mutant(
        bug=37,
        name="a-member-in-another-schema-is-told-without-it",
        file=MEMBERS,
        find="SELECT b.oid, pg_catalog.quote_ident(ms.nspname) || '.' || pg_catalog.quote_ident(m.relname) AS named",
        replace="SELECT b.oid, m.relname::text AS named",
        tests=(f"{OF_MEMBERS}::test_what_is_told_of_a_member_can_be_run_as_it_is",),
    ),
    Mutant(
        bug=37,
        name="a-partitioned-table-that-is-itself-unlogged-is-refused-for-ever",
        file=SHAPE,
        find="if not (table_schema.logged or table_schema.is_partitioned):",
        replace="if not table_schema.logged:",
        tests=(f"{OF_MEMBERS}::test_what_a_partitioned_table_is_itself_says_nothing_of_its_rows",),
    ),
    *(
        Mutant(
            bug=17,
            name=f"{name}-is-filled-by-two-sinks",
            file="src/penstock/sink/postgres/statements.py",
            find="(SELECT oid FROM below UNION SELECT oid FROM above)",
            replace=f"(SELECT oid FROM {kept})",
            tests=(f"{OF_MEMBERS}::test_a_table_and_a_part_of_it_belong_to_one_sink[deep-{order}]",),
        )
        for name, kept, order in (
            ("the-partition-of-a-table", "below", "table-first"),
            ("the-table-of-a-partition", "above", "partition-first"),
        )
    ),
)
