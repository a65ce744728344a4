"""Bugs planted where settings of triggers, tables, databases and stores are asked about that would undo the guarantee."""

from tests.mutation.mutant import Mutant

GUARANTEE = "src/penstock/transform/guarantee.py"
OF_PLANS = "tests/unit/test_transform_plan.py"

MUTANTS_OF_SETTINGS = (
    Mutant(
        bug=20,
        name="asynchronous-progress-is-exact",
        file=GUARANTEE,
        find='    if given.get(ASYNC_OPTION.lower(), "false").lower() != "true":\n',
        replace="    if True:\n",
        tests=(f"{OF_PLANS}::test_options_and_modes",),
    ),
    Mutant(
        bug=20,
        name="real-time-mode-is-exact",
        file=GUARANTEE,
        find="    if trigger.real_time is not None:\n",
        replace="    if False:\n",
        tests=(f"{OF_PLANS}::test_triggers",),
    ),
    Mutant(
        bug=21,
        name="a-table-of-any-engine-is-taken",
        file="src/penstock/sink/mysql/table_schema.py",
        find="    if table_schema.engine.lower() != ENGINE.lower():\n",
        replace="    if False:\n",
        tests=("tests/live/test_mysql_publish.py::test_a_column_that_was_altered_since_would_change_values_and_is_refused",),
    ),
    Mutant(
        bug=21,
        name="a-database-that-keeps-what-was-rolled-back-is-taken",
        file="src/penstock/sink/dbapi/preparation.py",
        find="    if not stayed:\n        session.rollback()\n",
        replace="    if True:\n        session.rollback()\n",
        tests=("tests/live/test_dbapi_trial.py",),
    ),
    Mutant(
        bug=27,
        name="a-rule-that-deletes-what-waits-is-not-told",
        file="src/penstock/blob/check.py",
        find="    if wrong:\n",
        replace="    if False:\n",
        tests=("tests/conformance/test_blob_expiry.py::test_rules_of_s3_that_would_hurt_are_told",),
    ),
    Mutant(
        bug=32,
        name="a-keyspace-without-a-commit-log-is-taken",
        file="src/penstock/sink/cassandra/table_schema.py",
        find="    if found.volatile_in is not None:\n",
        replace="    if False:\n",
        tests=(
            "tests/live/test_cassandra_refusals.py::test_a_keyspace_without_a_commit_log_is_refused_until_the_remedy_was_run",
        ),
    ),
    Mutant(
        bug=32,
        name="a-server-without-a-redo-log-is-taken",
        file="src/penstock/sql/mysql/server.py",
        find="    _require_redo_log(variables, place)\n",
        replace="",
        tests=("tests/live/test_mysql_refusals.py::test_settings_that_need_a_server_of_their_own",),
    ),
    Mutant(
        bug=32,
        name="rows-of-a-table-may-be-hidden-by-a-security-policy",
        file="src/penstock/sink/sqlserver/table_schema.py",
        find="    if table_schema.policies:\n",
        replace="    if False:\n",
        tests=("tests/unit/test_sqlserver_table.py::test_a_table_that_does_not_keep_what_it_takes_is_refused",),
    ),
    Mutant(
        bug=32,
        name="an-external-table-is-taken-for-one-on-disk",
        file="src/penstock/sink/sqlserver/table_schema.py",
        find='            "an external table": self.is_external,\n',
        replace="",
        tests=("tests/unit/test_sqlserver_table.py::test_a_table_that_does_not_keep_what_it_takes_is_refused",),
    ),
    Mutant(
        bug=42,
        name="a-traceback-names-values-of-rows-unasked",
        file="src/penstock/cli/output.py",
        find="    if not values:\n",
        replace="    if False:\n",
        tests=("tests/unit/test_cli_app.py::test_a_traceback_names_values_of_rows_where_they_are_asked_for",),
    ),
    Mutant(
        bug=35,
        name="a-selection-is-published-as-all-columns",
        file="src/penstock/core/model.py",
        find="return self.schemas.get(sink, self.schema)",
        replace="return self.schema",
        tests=("tests/spark/test_selection.py::test_what_is_decided_stays_as_it_was_selected[both]",),
    ),
    Mutant(
        bug=17,
        name="a-sink-takes-the-rows-of-anothers-predicate",
        file="src/penstock/stage/projection.py",
        find="len(self.routes) + self.predicates.index(predicate)",
        replace="len(self.routes)",
        tests=("tests/spark/test_selection.py::test_each_sink_takes_its_own_rows_in_one_pass[driver]",),
    ),
    Mutant(
        bug=17,
        name="rows-are-hashed-in-another-order-than-they-are-taken",
        file="src/penstock/stage/staging.py",
        find="rows, hashes = rows.filter(is_taken), hashes.filter(is_taken)",
        replace="rows, hashes = rows.filter(is_taken), hashes[: rows.filter(is_taken).num_rows]",
        tests=("tests/spark/test_selection.py::test_each_sink_takes_its_own_rows_in_one_pass[driver]",),
    ),
)
