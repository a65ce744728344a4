"""No mistake in a pipeline file shows a value that is, or could be, a secret."""

import pickle
from pathlib import Path

import pytest
from tests.unit.test_spec_errors import SINKS, SOURCES, TOP, mistake

from penstock.spec.load import load
from penstock.support.secret import SecretSQL, scrub, shown_text


@pytest.fixture(autouse=True)
def _in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    "override",
    [
        "geheim",
        "home=[geheim",
        "home=@geheim",
        "home=*geheim",
        "home=!a!geheim",
        "home.x=geheim",
        "pipeline.x.y=geheim",
    ],
)
def test_no_mistake_in_an_override_shows_its_value(tmp_path: Path, override: str) -> None:
    assert "geheim" not in str(mistake(tmp_path, TOP + SOURCES + SINKS, [override]))


@pytest.mark.parametrize("value", ["*geheim", "!a!geheim", "*'geheim'", "*geheim*"])
def test_what_is_taken_for_a_name_of_yaml_is_not_shown(tmp_path: Path, value: str) -> None:
    """As a password that begins with such a sign."""
    assert "geheim" not in str(mistake(tmp_path, TOP + SOURCES + SINKS + f"guarantee: {value}\n"))


@pytest.mark.parametrize("value", ["[geheim", "@geheim", "*geheim", "geheim/geheim"])
@pytest.mark.parametrize(
    "line",
    [
        "publish_behind: ${GIVEN}",
        "guarantee: ${GIVEN}",
        "transform: {python: '${GIVEN}'}",
        "trigger: {processing_time: '${GIVEN}'}",
        "output_mode: ${GIVEN}",
    ],
)
def test_no_mistake_shows_what_came_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, value: str
) -> None:
    monkeypatch.setenv("GIVEN", value)
    assert "found a hidden text" in (told := str(mistake(tmp_path, f"{TOP}{SOURCES}{SINKS}{line}\n")))
    assert "geheim" not in told


SELECTING = """\
sinks:
  w:
    type: sqlite
    url: sqlite:///w.db
    table: t
    write: upsert
    key: [value]
    where: tier = '${TIER}' AND zone = '${ZONE:-north}' AND mark = '$${TIER}'
    select: [value, "concat(${PIN}, '1') AS a"]
    delete_when: tier = '${TIER:-none}'
"""


def test_sql_is_shown_with_references_in_place_of_the_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the value is as short as a word of the SQL."""
    monkeypatch.setenv("TIER", "geheim")
    monkeypatch.setenv("PIN", "1")
    monkeypatch.delenv("ZONE", raising=False)
    (tmp_path / "f.yaml").write_text(TOP + SOURCES + SELECTING)
    sink = load("f.yaml").sinks["w"]
    where = "tier = '${TIER}' AND zone = 'north' AND mark = '${TIER}'"
    select = "concat(${PIN}, '1') AS a"
    assert sink.taking() == {
        "take": f"rows where {where}; columns value, {select}; deletes where tier = '${{TIER:-none}}'",
    }
    assert (sink.shown()["where"], sink.shown()["select"]) == (where, ["value", select])
    assert f"where={where!r}" in repr(sink)
    assert f"{sink.where!r}" == repr(where)
    assert sink.where == "tier = 'geheim' AND zone = 'north' AND mark = '${TIER}'"
    assert sink.select == ("value", "concat(1, '1') AS a")
    assert pickle.loads(pickle.dumps(sink)) == sink


def test_sql_of_a_file_that_this_process_did_not_load_is_not_shown() -> None:
    """As in a worker of Spark, which gets it pickled."""
    assert f"{SecretSQL('nowhere = loaded')!r} {shown_text(SecretSQL('nowhere = loaded'))}" == "'***' ***"


def test_secrets_are_found_where_messages_quote_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "back\\slash'quote\"sign"
    monkeypatch.setenv("GIVEN", secret)
    given = "sinks: {m: {python: 'a.b:C', deep: {list: ['${GIVEN}']}}}\n"
    (tmp_path / "f.yaml").write_text(TOP + SOURCES + given)
    assert secret not in f"{load('f.yaml').shown()} {load('f.yaml')!r}"
    assert scrub(f"{secret} {secret!r}") == "*** '***'"
