"""Values of a pipeline file that quotes do not mend."""

from pathlib import Path

import pytest
from tests.unit.test_spec_errors import SINKS, SOURCES, TOP, mistake


@pytest.mark.parametrize(
    ("text", "message", "remedy"),
    [
        (
            TOP.replace("home: ./state", "home:") + SOURCES + SINKS,
            "f.yaml:2: home should be text, found nothing.",
            "Give it a value, or take the key out.",
        ),
        (
            TOP + SOURCES.replace("rate", "csv, path: [./a, ./b]") + SINKS,
            "f.yaml:4: sources.flights.path should be text, found a list.",
            "Write one text behind the key.",
        ),
    ],
)
def test_what_is_no_text_is_not_told_to_be_put_in_quotes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str, remedy: str
) -> None:
    monkeypatch.chdir(tmp_path)
    error = mistake(tmp_path, text)
    assert (error.message, error.remedy) == (message, remedy)
