"""No mistake in a pipeline file shows a value that is, or could be, a secret."""

from pathlib import Path

import pytest
from tests.unit.test_spec_errors import SINKS, SOURCES, TOP, mistake


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
