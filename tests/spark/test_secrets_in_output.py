"""A marker secret at every place of a pipeline file is in no output of the verbs that start Spark, nor in the text of a plan."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.run.jvm import OPTIONS, TEXTS, secrets_of
from penstock.run.session import session_of
from penstock.spark.session_settings import applied
from penstock.spec.load import load
from tests.crash.commandline import penstock
from tests.unit.secret_places import MARKER, PARTS, PLACES, VALID, refusing_server

pytestmark = [pytest.mark.spark]

VERBS = {
    "check": (("--show-values",), ("--json",)),
    "explain": (("--show-values",), ("--json",)),
    "run": (("--available-now", "--grace", "0", "--show-values", "--json"),),
}
CASES = [(verb, name) for name in VALID for verb in VERBS if verb not in PLACES[name].waits]


@pytest.fixture(name="web", scope="module")
def _web() -> Iterator[str]:
    with refusing_server() as address:
        yield address


@pytest.fixture(name="session")
def _session(spark: SparkSession) -> Iterator[SparkSession]:
    """The session of all tests, whose patterns are afterwards as before."""
    before = {key: spark.conf.get(key, None) for key in (OPTIONS, TEXTS)}
    yield spark
    for key, pattern in before.items():
        if pattern is None:
            spark.conf.unset(key)
        else:
            spark.conf.set(key, pattern)


@pytest.mark.usefixtures("session")
@pytest.mark.parametrize(("verb", "place"), CASES)
def test_no_output_holds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, web: str, place: str, verb: str) -> None:
    monkeypatch.setenv("S", MARKER)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "rows.csv").write_text("1\n2\n")
    file = PLACES[place].write(tmp_path, web=web)
    for words in VERBS[verb]:
        ended = penstock(verb, str(file), *words)
        assert [part for part in PARTS if part in str(ended)] == []
        assert ended.out + ended.err


@pytest.mark.usefixtures("session")
def test_the_text_of_a_plan_holds_no_value_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the UI and the event log show it: by Java's own search for the pattern."""
    monkeypatch.setenv("S", "gehe(im|wort)*")
    settings = load(PLACES["where"].write(tmp_path))
    assert secrets_of(settings).values == {"gehe(im|wort)*"}
    frame = session_of(settings).range(1).where("CAST(id AS STRING) <> 'gehe(im|wort)*'")
    plan = frame._jdf.queryExecution().toString()
    assert "gehe" not in plan
    assert "(redacted)" in plan


@pytest.mark.usefixtures("session")
def test_a_long_plan_is_searched_for_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("S", "gehe(im|wort)*")
    started = session_of(load(PLACES["where"].write(tmp_path)))
    columns = (f"concat('{'x' * 1000}', id, 'gehe(im|wort)*') AS a{number}" for number in range(300))
    with applied(started, {"spark.sql.debug.maxToStringFields": "10000"}):
        plan = started.range(1).selectExpr(*columns)._jdf.queryExecution().toString()
    assert len(plan) > 300_000
    assert "gehe" not in plan
