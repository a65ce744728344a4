"""Errors that quote what Spark, a database or a store said: no secret is in them, nor the half of one that was cut off."""

import re
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from pyspark.errors import PySparkException

from penstock.checkpoint.spark_checkpoint import SparkCheckpoint
from penstock.core.model import ONLY_ACCOUNT, Finding, SinkName
from penstock.errors import Failed, PenstockError
from penstock.run import doctor, status
from penstock.run.failure import error_from_exception, error_from_query, translate_start_errors
from penstock.run.required_guarantees import _require_computable
from penstock.sink.postgres.statements import SYNTAX
from penstock.sink.table.script import script_of
from penstock.source.open import _opened, _with_schema, _with_watermark
from penstock.source.schema import bad_schema
from penstock.spark.error import SparkError
from penstock.spec.source import Source, Watermark
from penstock.stage.staging import _failed, from_spark
from penstock.support.secret import Secret, SecretSQL, remember, remember_given
from penstock.support.user_code import raised
from penstock.transform.apply import _wrong_sql, run_sql
from penstock.transform.selection import RowAnalysis

SECRET = "".join(f"geheim{number}-" for number in range(20))
LONG = "z" * 580 + " '" + SECRET + "' and more"
"""Spark's sentences end after 600 letters, which is within the secret here."""
SQL = f"SELECT '{SECRET}' AS a\nFROM t WHERE b = '{SECRET}' AND ((c"
SHOWN = "SELECT '${S}' AS a\nFROM t WHERE b = '${S}' AND ((c"
DDL = "id INT, " * 20 + f"name STRING COMMENT '{SECRET}'"


@pytest.fixture(autouse=True)
def _loaded() -> None:
    """As after the load of a pipeline file with it."""
    remember(Secret(SECRET))
    remember_given(SQL, [SECRET], shown=SHOWN)
    remember_given(DDL, [SECRET], shown=DDL.replace(SECRET, "${S}"))


def raising(*_: object, **__: object) -> None:
    raise PySparkException(f"[UNRESOLVED_COLUMN] {LONG}")


def refusing(*_: object, **__: object) -> None:
    raise PySparkException(f"[PARSE_SYNTAX_ERROR] {LONG} SQLSTATE: 42601 (line 2, pos 3)")


FRAME = SimpleNamespace(columns=["a"], selectExpr=raising, withWatermark=raising)
READER = SimpleNamespace(schema=raising, format=lambda _: SimpleNamespace(load=raising))
SPARK = SimpleNamespace(
    readStream=SimpleNamespace(options=lambda **_: READER), version="4.3.0", conf=SimpleNamespace(get=lambda _, default: default)
)
CSV = Source(format="csv", path="/in", schema="a INT", watermark=Watermark(column="a", delay="1s"))


def told(call: Callable[[], object]) -> str:
    """What a caller sees who prints the error, as a notebook does: nothing masks it once more."""
    try:
        found = call()
    except PenstockError as error:
        return str(error)
    return str(found)


def start() -> None:
    with translate_start_errors():
        raise RuntimeError(LONG)


CUT = {
    "a failed batch": lambda: error_from_exception(RuntimeError(LONG)),
    "a failed start": start,
    "a failed query": lambda: error_from_query(LONG, checkpoint=SparkCheckpoint("/nowhere")),
    "a failed stage": lambda: from_spark(RuntimeError(LONG)),
    "a failed task": lambda: _failed(RuntimeError(LONG)),
    "a user's function": lambda: raised(RuntimeError(LONG)),
    "a query": lambda: run_sql(SimpleNamespace(sql=raising), "SELECT 1"),
    "a query that cannot be parsed": lambda: run_sql(SimpleNamespace(sql=refusing), "SELECT 1"),
    "a selection": lambda: RowAnalysis(FRAME, "sinks.a")._fields("a", key="where", shown="a"),
    "a route": lambda: _require_computable(FRAME, SimpleNamespace(name="a", route_sql="a")),
    "a source": lambda: _opened(SPARK, "s", CSV.model_copy(update={"schema_ddl": None})),
    "a schema": lambda: _with_schema(READER, "s", CSV),
    "a watermark": lambda: _with_watermark(FRAME, "s", CSV),
    "a schema that is long": lambda: bad_schema("s", SecretSQL(DDL), SparkError(message="Syntax error")),
    "a merge": lambda: script_of(f"1{SECRET} {{staged}}", SYNTAX),
}


@pytest.mark.parametrize("case", CUT)
def test_what_is_cut_off_holds_no_part_of_a_secret(case: str) -> None:
    text = told(CUT[case])
    assert re.search(r"geh|eim|\d-", text) is None, text
    assert "***" in text or "${S" in text


@pytest.mark.parametrize("column", [1, 40, 100, 170])
@pytest.mark.parametrize("line", [1, 2])
def test_no_part_of_a_secret_in_a_query_is_told(line: int, column: int) -> None:
    """Around the place of an error 80 letters are told, which may begin and end within a secret."""
    text = told(lambda: _wrong_sql(SparkError(message="Syntax error", line=line, column=column), SQL))
    assert "***" in text
    assert re.search(r"geh|eim|\d-", text) is None, text


def test_a_query_without_a_secret_is_told_as_it_is() -> None:
    text = _wrong_sql(SparkError(message="Syntax error", line=2, column=3), "SELECT 1\nFRM **** t").message
    assert text.endswith("It is near `FRM **** t`.")


def refused(*_: object) -> None:
    raise Failed(f"No login with {SECRET}.", remedy="Correct it.")


def test_findings_and_states_of_places_hold_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Finding(subject="s", ok=False, message=f"No login with {SECRET}.").message == "No login with ***."
    place = (SinkName("s"), ONLY_ACCOUNT)
    states = [status._state(place, Failed(f"No login with {SECRET}.", remedy="-"), None, 0)]
    monkeypatch.setattr(status, "sink_of", refused)
    states += status.places_of(SimpleNamespace(settings=SimpleNamespace(sinks={"s": 1})), None)
    monkeypatch.setattr(doctor, "_state", refused)
    states += doctor._states(SimpleNamespace(name="s", accounts=[ONLY_ACCOUNT], close=lambda: None), None)
    assert [state.trouble.partition(".")[0] for state in states] == ["No login with ***"] * 3
