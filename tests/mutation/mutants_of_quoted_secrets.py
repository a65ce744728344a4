"""Secrets in what messages and plans quote: SQL, errors of Spark, answers of stores."""

from tests.mutation.mutant import Mutant

JVM = "src/penstock/run/jvm.py"
LOOK = "src/penstock/observe/look.py"
PAGE = "src/penstock/observe/page/rendering.py"
SQL = "src/penstock/spec/sql.py"
SECRET = "src/penstock/support/secret.py"
SELECTION = "src/penstock/spec/selection.py"
OF_JVM = "tests/unit/test_run_jvm.py"
OF_METRICS = "tests/unit/test_metrics.py"
OF_PAGE = "tests/unit/test_page.py"
OF_OUTPUT = "tests/unit/test_secrets_in_output.py"
OF_ERRORS = "tests/unit/test_secrets_in_errors.py::test_what_is_cut_off_holds_no_part_of_a_secret"
OF_STATES = "tests/unit/test_secrets_in_errors.py::test_findings_and_states_of_places_hold_no_secret"
OF_SHOWN = "tests/unit/test_spec_secrets.py::test_sql_is_shown_with_references_in_place_of_the_values"
OF_QUOTES = "tests/unit/test_spec_secrets.py::test_secrets_are_found_where_messages_quote_them"
OF_URLS = "tests/unit/test_malformed_urls.py::test_no_part_of_a_password_is_shown_whatever_is_malformed"

FIELDS = {
    "where": (SELECTION, "    where: SQL |", "    where: str |"),
    "select": (SELECTION, "    select: Expressions =", "    select: Columns ="),
    "delete-when": (SELECTION, "    delete_when: SQL |", "    delete_when: str |"),
    "route": ("src/penstock/spec/location.py", "    sql: SQL |", "    sql: str |"),
    "transform": ("src/penstock/spec/pipeline.py", "    sql: SQL |", "    sql: str |"),
    "merge": ("src/penstock/spec/merge.py", "    sql: SQL |", "    sql: str |"),
    "type-of-a-column": ("src/penstock/spec/table.py", "Mapping[str, SQLType]", "Mapping[str, str]"),
    "schema": ("src/penstock/spec/source.py", "    schema_ddl: SQL |", "    schema_ddl: str |"),
}
SHOWN = {
    "where": ('shown_text(self.where or "")', 'self.where or ""'),
    "select": ('", ".join(map(shown_text, self.select))', '", ".join(self.select)'),
    "delete-when": ('shown_text(self.deletes or "")', 'self.deletes or ""'),
}
CUT = {
    "batch": (
        "src/penstock/run/failure.py",
        "The batch failed with {type(cause).__name__}: {read_spark_failure(scrub(str(cause)))",
    ),
    "start": (
        "src/penstock/run/failure.py",
        "The start failed with {type(cause).__name__}: {read_spark_failure(scrub(str(cause)))",
    ),
    "query": ("src/penstock/run/failure.py", "read_spark_failure(scrub(text))"),
    "stage": ("src/penstock/stage/staging.py", "read_spark_failure(scrub(str(cause)))"),
    "task": ("src/penstock/stage/staging.py", "reason = scrub(str(cause))"),
    "function": ("src/penstock/support/user_code.py", "read_spark_error(scrub(str(error)))"),
    "transform": ("src/penstock/transform/apply.py", "raise _wrong_sql(read_spark_error(scrub(str(error))), query)"),
    "syntax": ("src/penstock/transform/apply.py", "spark_error = read_spark_error(scrub(str(error)))"),
    "selection": ("src/penstock/transform/selection.py", "read_spark_error(scrub(str(error)))"),
    "route": ("src/penstock/run/required_guarantees.py", "read_spark_error(scrub(str(error)))"),
    "source": ("src/penstock/source/open.py", "_explained(name, source, read_spark_error(scrub(str(error)))"),
    "schema": ("src/penstock/source/open.py", 'bad_schema(f"sources.{name}.schema", text, read_spark_error(scrub(str(error))))'),
    "watermark": ("src/penstock/source/open.py", "reason = read_spark_error(scrub(str(error)))"),
    "merge": ("src/penstock/sink/table/script.py", "scrub(statement.shown)"),
}
STATES = {
    "finding": ("src/penstock/core/model.py", '"message", scrub(self.message)'),
    "place-of-status": ("src/penstock/run/status.py", "trouble=scrub(str(mark))"),
    "sink-of-status": ("src/penstock/run/status.py", "trouble=scrub(str(error))"),
    "account-of-doctor": ("src/penstock/run/doctor.py", "trouble=scrub(str(error))"),
}


def unscrubbed(text: str) -> str:
    """`text` without its call of `scrub`."""
    before, _, rest = text.partition("scrub(")
    depth, at = 1, 0
    while depth and at < len(rest):
        depth += {"(": 1, ")": -1}.get(rest[at], 0)
        at += 1
    return f"{before}{rest[: at - 1]}{rest[at:]}"


MUTANTS_OF_QUOTED_SECRETS = (
    *(
        Mutant(
            bug=38,
            name=f"the-sql-of-{key}-is-a-plain-text",
            file=file,
            find=find,
            replace=replace,
            tests=(f"{OF_OUTPUT}::test_every_field_of_sql_is_marked_as_such",),
        )
        for key, (file, find, replace) in FIELDS.items()
    ),
    *(
        Mutant(bug=38, name=f"explain-shows-{key}", file=SELECTION, find=find, replace=replace, tests=(OF_SHOWN,))
        for key, (find, replace) in SHOWN.items()
    ),
    *(
        Mutant(
            bug=38,
            name=f"half-a-secret-in-the-error-of-a-{key}",
            file=file,
            find=find,
            replace=unscrubbed(find),
            tests=(OF_ERRORS,),
        )
        for key, (file, find) in CUT.items()
    ),
    *(
        Mutant(bug=38, name=f"a-{key}-quotes-a-secret", file=file, find=find, replace=unscrubbed(find), tests=(OF_STATES,))
        for key, (file, find) in STATES.items()
    ),
    Mutant(
        bug=38,
        name="a-probe-quotes-a-secret",
        file=LOOK,
        find='scrub(f"{type(error).__name__}: {error}")',
        replace='f"{type(error).__name__}: {error}"',
        tests=(f"{OF_METRICS}::test_an_error_that_nobody_expected_hides_no_other_pipeline",),
    ),
    Mutant(
        bug=38,
        name="metrics-are-shown-to-whoever-sends-any-token",
        file="src/penstock/observe/endpoint.py",
        find="hmac.compare_digest(sent, token.encode())",
        replace="bool(given)",
        tests=(f"{OF_METRICS}::test_with_a_token_metrics_are_for_those_who_have_it",),
    ),
    Mutant(
        bug=38,
        name="a-page-takes-texts-for-markup",
        file=PAGE,
        find="autoescape=True",
        replace="autoescape=False",
        tests=(f"{OF_PAGE}::test_a_page_is_served_with_a_strict_policy",),
    ),
    Mutant(
        bug=38,
        name="a-page-takes-messages-for-markup",
        file=PAGE,
        find="else escape(part) for",
        replace="else Markup(part) for",
        tests=(f"{OF_PAGE}::test_a_report_says_what_there_is_and_stays_small",),
    ),
    Mutant(
        bug=38,
        name="a-page-quotes-a-secret",
        file=PAGE,
        find="_short(scrub(text), LONGEST_TEXT)",
        replace="_short(text, LONGEST_TEXT)",
        tests=(f"{OF_PAGE}::test_a_page_shows_no_secret",),
    ),
    Mutant(
        bug=38,
        name="sql-with-a-secret-is-shown",
        file=SQL,
        find="    return SecretSQL(text)",
        replace="    return text",
        tests=(OF_SHOWN,),
    ),
    Mutant(
        bug=38,
        name="errors-quote-sql-with-the-values-of-variables",
        file=SECRET,
        find="        return repr(self.shown)",
        replace="        return str.__repr__(self)",
        tests=(OF_SHOWN,),
    ),
    Mutant(
        bug=38,
        name="errors-quote-values-of-variables-in-sql",
        file=SQL,
        find="        remember(Secret(part))",
        replace="        pass",
        tests=(f"{OF_JVM}::test_values_of_the_environment_in_a_query_are_redacted_and_in_no_error",),
    ),
    Mutant(
        bug=38,
        name="a-literal-in-a-value-is-printed-without-its-escapes",
        file=SQL,
        find='yield from (part, _ESCAPED.sub(r"\\1", part))',
        replace="yield part",
        tests=(f"{OF_JVM}::test_literals_in_a_value_are_redacted_as_spark_prints_them",),
    ),
    Mutant(
        bug=38,
        name="a-value-with-several-literals-is-looked-for-as-a-whole",
        file=SQL,
        find='(value, *(found[1] or found[2] or "" for found in _LITERAL.finditer(value)))',
        replace="(value,)",
        tests=(f"{OF_JVM}::test_literals_in_a_value_are_redacted_as_spark_prints_them",),
    ),
    Mutant(
        bug=38,
        name="plans-show-sql-with-the-values-of-variables",
        file=JVM,
        find=" | secrets_in_sql(settings),",
        replace=",",
        tests=(f"{OF_JVM}::test_values_of_the_environment_in_a_query_are_redacted_and_in_no_error",),
    ),
    Mutant(
        bug=38,
        name="one-source-hides-the-secret-of-another",
        file=JVM,
        find="frozenset(value for _, value in secret)",
        replace="frozenset(dict(secret).values())",
        tests=(f"{OF_JVM}::test_sources_with_an_option_of_one_name_keep_their_secrets_each",),
    ),
    Mutant(
        bug=38,
        name="plans-show-a-password-in-a-path",
        file=JVM,
        find='            yield "path", source.path',
        replace="            pass",
        tests=(f"{OF_JVM}::test_what_reaches_spark_by_other_ways_is_redacted_too",),
    ),
    Mutant(
        bug=38,
        name="plans-show-the-login-of-our-own-reader",
        file=JVM,
        find="                yield from data_source_options(name, source).items()",
        replace="                pass",
        tests=(f"{OF_JVM}::test_what_reaches_spark_by_other_ways_is_redacted_too",),
    ),
    Mutant(
        bug=38,
        name="a-pattern-overflows-the-stack-of-java",
        file=JVM,
        find='    return "|".join(map(re.escape, sorted(',
        replace='    return "(%s)+" % "|".join(map(re.escape, sorted(',
        tests=(f"{OF_JVM}::test_no_group_of_a_pattern_is_repeated",),
    ),
    Mutant(
        bug=38,
        name="half-a-secret-near-a-mistake-in-sql",
        file="src/penstock/transform/apply.py",
        find="_with_secrets_marked(query).split(",
        replace="query.split(",
        tests=("tests/unit/test_secrets_in_errors.py::test_no_part_of_a_secret_in_a_query_is_told",),
    ),
    Mutant(
        bug=38,
        name="half-a-secret-in-a-schema",
        file="src/penstock/source/schema.py",
        find="shown_text(text)[:200]",
        replace="text[:200]",
        tests=(OF_ERRORS,),
    ),
    Mutant(
        bug=38,
        name="columns-named-after-a-secret-are-explained",
        file="src/penstock/run/explain.py",
        find='scrub(f"{field.name} {field.dataType.simpleString()}")',
        replace='f"{field.name} {field.dataType.simpleString()}"',
        tests=("tests/spark/test_secrets_in_output.py::test_no_output_holds_it[explain-transform without a name]",),
    ),
    Mutant(
        bug=38,
        name="a-quoted-secret-is-another-text",
        file=SECRET,
        find="            _known.update((secret, repr(secret)[1:-1]))",
        replace="            _known.add(secret)",
        tests=(OF_QUOTES,),
    ),
    Mutant(
        bug=38,
        name="secrets-inside-of-options-are-not-looked-for",
        file=SECRET,
        find="            remember_options(value)\n",
        replace="            pass\n",
        tests=(OF_QUOTES,),
    ),
    Mutant(
        bug=38,
        name="a-password-is-the-port-of-a-catalog",
        file="src/penstock/spec/place.py",
        find='_REST = re.compile(r"https?://([^\\s/@:?#\\[\\]]+|',
        replace='_REST = re.compile(r"https?://([^\\s/@?#]+|',
        tests=(OF_URLS,),
    ),
    Mutant(
        bug=38,
        name="a-connection-string-has-any-endpoint",
        file="src/penstock/blob/azure.py",
        find=' if name.endswith("endpoint") and not is_address(value)',
        replace=" if False",
        tests=(OF_URLS,),
    ),
)
