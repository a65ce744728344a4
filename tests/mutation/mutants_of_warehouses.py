"""Mutants of the redshift, sqlserver and dbapi sinks, which have no server of their own to be tried on."""

from tests.mutation.mutant import Mutant

REDSHIFT, SQLSERVER = "src/penstock/sink/redshift", "src/penstock/sink/sqlserver"
SESSION = "src/penstock/sql/session.py"
OF_SERVED = "tests/live/test_served_publish.py"
OF_SQLSERVER = "tests/unit/test_sqlserver_publish.py"
OF_DIALOGUE = "tests/unit/test_sqlserver_dialogue.py"

MUTANTS_OF_WAREHOUSES = (
    Mutant(
        bug=35,
        name="a-constraint-that-a-decided-batch-breaks-is-told-as-a-session-in-the-way",
        file="src/penstock/sink/dbapi/sink.py",
        find="    def _conflict_error(",
        replace="    def _never_called(",
        tests=("tests/attack/test_decided_columns.py::test_a_constraint_that_a_decided_batch_breaks_is_told_with_what_to_do",),
    ),
    Mutant(
        bug=7,
        name="the-marker-is-read-without-the-lock-in-redshift",
        file=f"{REDSHIFT}/statements.py",
        find='return f"LOCK TABLE {self.named(FENCE_TABLE)}", PATIENT',
        replace="return (PATIENT,)",
        tests=(f"{OF_SERVED}::test_a_publisher_waits_for_the_one_that_holds_the_marker[redshift]",),
    ),
    Mutant(
        bug=17,
        name="rows-that-are-replaced-stay-in-redshift",
        file=f"{REDSHIFT}/load.py",
        find="        deleted = connection.execute(statements.delete_there()).rowcount\n",
        replace="        deleted = there.rows\n",
        tests=("tests/live/test_redshift_table.py::test_a_table_with_a_key_twice_has_both_rows_replaced",),
    ),
    Mutant(
        bug=17,
        name="a-key-with-a-blank-at-its-end-is-taken",
        file="src/penstock/sink/table/row_validator.py",
        find='        if pc.any(pc.ends_with(column, " ")).as_py():\n',
        replace='        if pc.any(pc.ends_with(column, "  ")).as_py():\n',
        tests=("tests/unit/test_sqlserver_table.py::test_values_that_sql_server_would_change_are_refused_in_the_task",),
    ),
    Mutant(
        bug=15,
        name="a-commit-without-an-answer-is-told-as-rolled-back",
        file=SESSION,
        find="Conflict(self._reason(cause)) if self._rolled_back(cause) else None",
        replace="Conflict(self._reason(cause))",
        tests=(f"{OF_SQLSERVER}::test_after_a_commit_without_an_answer_the_marker_decides[append-True]",),
    ),
    Mutant(
        bug=7,
        name="the-marker-is-read-without-the-lock-in-sql-server",
        file=f"{SQLSERVER}/statements.py",
        find='lock_hint = "WITH (UPDLOCK, HOLDLOCK, ROWLOCK) "',
        replace='lock_hint = ""',
        tests=(f"{OF_DIALOGUE}::test_the_dialogue_is_the_recorded_one[append]",),
    ),
    Mutant(
        bug=15,
        name="a-transaction-that-ended-by-itself-counts-as-committed",
        file=f"{SQLSERVER}/database.py",
        find="        if not connection.in_transaction:\n",
        replace="        if connection.in_transaction is None:\n",
        tests=(f"{OF_SQLSERVER}::test_a_transaction_that_ended_by_itself_is_not_taken_for_committed",),
    ),
    Mutant(
        bug=17,
        name="sql-server-may-keep-half-of-a-transaction",
        file=f"{SQLSERVER}/statements.py",
        find='"XACT_ABORT ON"',
        replace='"XACT_ABORT OFF"',
        tests=(f"{OF_DIALOGUE}::test_the_dialogue_is_the_recorded_one[append]",),
    ),
    Mutant(
        bug=17,
        name="the-number-of-rows-is-not-compared-in-sql-server",
        file=f"{SQLSERVER}/load.py",
        find="        return Loaded(rows=connection.execute(statements.insert()).rowcount, displaced=Totals())\n",
        replace="        connection.execute(statements.insert())\n        return Loaded(rows=staged, displaced=Totals())\n",
        tests=(f"{OF_SQLSERVER}::test_rows_that_a_trigger_drops_are_noticed",),
    ),
    Mutant(
        bug=14,
        name="a-session-that-cannot-be-set-up-stays-open",
        file="src/penstock/sql/session.py",
        find="        yield session\n    except BaseException:\n        session.close()\n",
        replace="        yield session\n    except BaseException:\n",
        tests=("tests/unit/test_sqlserver_table.py::test_a_session_that_cannot_be_set_up_is_closed",),
    ),
)
