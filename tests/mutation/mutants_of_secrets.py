"""Secrets and rows put where others on the machine can read them."""

from tests.mutation.mutant import Mutant

JVM = "src/penstock/run/jvm.py"
REDACTION = "src/penstock/run/jvm.py"
FILES = "src/penstock/support/private_files.py"
OF_JVM = "tests/unit/test_run_jvm.py"
OF_FILES = "tests/unit/test_private_files.py"
OF_PRINTING = "tests/unit/test_printable.py"
OF_PLACES = "tests/unit/test_private_files_everywhere.py"
OF_MISTAKES = "tests/unit/test_spec_secrets.py"

MUTANTS_OF_SECRETS = (
    Mutant(
        bug=42,
        name="what-a-driver-says-of-a-statement-is-told-with-passwords",
        file="src/penstock/sink/dbapi/preparation.py",
        find="cannot be {how}: {reason_of(cause)}.",
        replace="cannot be {how}: {cause}.",
        tests=("tests/unit/test_dbapi_sink.py::test_what_the_driver_says_of_a_statement_is_told_without_passwords",),
    ),
    Mutant(
        bug=38,
        name="all-settings-go-onto-the-command-line",
        file=JVM,
        find="for key, value in settings.items() if key not in secret]",
        replace="for key, value in settings.items()]",
        tests=(f"{OF_JVM}::test_secrets_go_through_a_file_that_nobody_else_reads_and_that_is_gone_afterwards",),
    ),
    Mutant(
        bug=38,
        name="the-file-of-secrets-stays",
        file=JVM,
        find="        Path(name).unlink(missing_ok=True)",
        replace="        pass",
        tests=(f"{OF_JVM}::test_a_start_that_fails_leaves_no_file",),
    ),
    Mutant(
        bug=38,
        name="the-ui-listens-on-all-addresses",
        file=JVM,
        find="            os.environ[_BIND_UI] = _LOOPBACK",
        replace="            pass",
        tests=(f"{OF_JVM}::test_spark_on_this_machine_alone_listens_for_it_alone",),
    ),
    Mutant(
        bug=38,
        name="a-users-own-pattern-is-replaced",
        file=REDACTION,
        find='f"(?:{pattern})|{ours}"',
        replace="ours",
        tests=(f"{OF_JVM}::test_the_users_own_pattern_is_extended_and_never_replaced",),
    ),
    Mutant(
        bug=38,
        name="hadoop-shows-what-spark-hides",
        file=REDACTION,
        find="*(name for key in secret for name in _in_hadoop(key)), ",
        replace="",
        tests=(f"{OF_JVM}::test_what_holds_a_secret_is_redacted_and_nothing_else",),
    ),
    Mutant(
        bug=38,
        name="the-umask-decides-who-reads-rows",
        file=FILES,
        find="_FILE, _SHARED_FILE = 0o600, 0o660",
        replace="_FILE, _SHARED_FILE = 0o666, 0o660",
        tests=(OF_FILES, f"{OF_PLACES}::test_files_beside_an_open_sqlite_ledger"),
    ),
    Mutant(
        bug=38,
        name="staged-rows-are-open-to-all",
        file="src/penstock/sink/parquet/directory/area.py",
        find="""\
                create_durably(self.staging, make_private_directory)
                create_durably(self.staging / PIECES, make_private_directory)
""",
        replace="                create_durably(self.staging / PIECES)\n",
        tests=(f"{OF_PLACES}::test_what_is_staged_is_closed_to_others_by_its_directory",),
    ),
    Mutant(
        bug=38,
        name="a-traceback-holds-the-secrets-of-errors",
        file="src/penstock/cli/output.py",
        find='printable(scrub("".join(whole.format())))',
        replace='printable("".join(whole.format()))',
        tests=(f"{OF_PRINTING}::test_the_traceback_of_debug_and_warnings",),
    ),
    Mutant(
        bug=38,
        name="names-move-the-cursor-of-a-terminal",
        file="src/penstock/cli/output.py",
        find="Segment(printable(segment.text), segment.style)",
        replace="segment",
        tests=(f"{OF_PRINTING}::test_progress_of_a_run",),
    ),
    Mutant(
        bug=38,
        name="programs-hand-controls-on",
        file="src/penstock/cli/output.py",
        find="    return printable_json(json.dumps(",
        replace="    return str(json.dumps(",
        tests=(f"{OF_PRINTING}::test_programs_get_it_escaped",),
    ),
    Mutant(
        bug=30,
        name="the-text-null-is-duckdbs-null",
        file="src/penstock/sink/parquet/layout.py",
        find="    if text.lower() == _NULL_OF_DUCKDB or",
        replace="    if text == _NULL_OF_DUCKDB or",
        tests=("tests/unit/test_parquet_hive.py::test_duckdb_and_pyarrow_read_the_same_text",),
    ),
    Mutant(
        bug=38,
        name="aliases-multiply-without-end",
        file="src/penstock/spec/document.py",
        find="        self._count(item)\n",
        replace="",
        tests=("tests/unit/test_spec_load.py::test_aliases_that_multiply_are_refused",),
    ),
    Mutant(
        bug=38,
        name="settings-are-shown-with-what-came-from-the-environment",
        file="src/penstock/support/secret.py",
        find="    return MASK if isinstance(text, Secret) or looks_secret(name) else redact(text)",
        replace="    return redact(text)",
        tests=("tests/unit/test_secrets_in_output.py::test_each_place_is_a_valid_one",),
    ),
    Mutant(
        bug=38,
        name="texts-that-are-none-are-stored",
        file="src/penstock/sink/parquet/stager.py",
        find="        require_valid(rows, sink=self._settings.sink)\n",
        replace="",
        tests=("tests/unit/test_parquet_stage.py::test_texts_that_are_no_utf8_are_refused",),
    ),
    Mutant(
        bug=38,
        name="a-value-that-is-no-yaml-is-shown",
        file="src/penstock/spec/document.py",
        find='f"The value is not valid YAML: {problem}."',
        replace='f"The value {text!r} is not valid YAML: {problem}."',
        tests=(f"{OF_MISTAKES}::test_no_mistake_in_an_override_shows_its_value",),
    ),
    Mutant(
        bug=38,
        name="a-password-is-shown-as-a-name-of-yaml",
        file="src/penstock/spec/document.py",
        find='    return _NAMED.sub(r"\\1", problem)',
        replace="    return problem",
        tests=(f"{OF_MISTAKES}::test_what_is_taken_for_a_name_of_yaml_is_not_shown",),
    ),
    Mutant(
        bug=38,
        name="what-a-validator-made-a-plain-text-of-is-shown",
        file="src/penstock/spec/complaint.py",
        find="        if is_from_environment(value):",
        replace="        if False:",
        tests=(f"{OF_MISTAKES}::test_no_mistake_shows_what_came_from_the_environment",),
    ),
)
