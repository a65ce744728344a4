"""What people read when the settings of an HTTP endpoint are wrong."""

from pathlib import Path

import pytest
from tests.unit.test_spec_errors import SOURCES, TOP, lake, mistake

MISTAKES = [
    (
        lake("type: http", "url: s3://ann:geheim@host/db"),
        "f.yaml:8: sinks.lake.url holds a user.",
        "Write it as `user` and `password` beside `url`, best as ${VARIABLE}.",
    ),
    (
        lake("type: http", "url: geheim.example.com/rows"),
        "f.yaml:8: sinks.lake.url should be the URL of an endpoint, found a text without scheme://.",
        "Write it like https://api.example.com/orders.",
    ),
    (
        lake("type: http", "url: https://h/r", "user: ann"),
        "f.yaml:6: sinks.lake has one of user and password.",
        "Give both, or neither.",
    ),
    (
        lake("type: http", "url: https://h/r", "token: geheim", "headers: {authorization: geheim}"),
        "f.yaml:10: sinks.lake.headers is given together with token.",
        "Keep one way to log in.",
    ),
    (
        lake("type: http", "url: https://h/r", "headers: {Idempotency-Key: geheim}"),
        "f.yaml:9: sinks.lake.headers.Idempotency-Key is a header that Penstock sets.",
        "Take it out.",
    ),
    (
        lake("type: http", "url: https://h/r", 'headers: {X: "geheim\\n"}'),
        "f.yaml:9: sinks.lake.headers.X has a name or value that no header has.",
        "Use ASCII, without line breaks, or blanks at an end.",
    ),
    (
        lake("type: http", "url: https://h/r", 'headers: {X: " geheim"}'),
        "f.yaml:9: sinks.lake.headers.X has a name or value that no header has.",
        "Use ASCII, without line breaks, or blanks at an end.",
    ),
    (
        lake("type: http", "url: https://h/r", 'token: "geheim\n"'),
        "f.yaml:9: sinks.lake.token should be what a header can hold.",
        "Use ASCII, without line breaks, or blanks at an end, as a file may have.",
    ),
    (
        lake("type: http", "url: https://h/r", "signing_secret: whsec_geheim_is_not_base64"),
        "f.yaml:9: sinks.lake.signing_secret is no base64 behind whsec_.",
        "Copy the whole secret.",
    ),
    (
        lake("type: http", "url: https://h/r", "body: record", "rows_per_request: 2"),
        "f.yaml:10: sinks.lake.rows_per_request does not go with body: record.",
        "Leave it out, or take json_lines.",
    ),
]


@pytest.mark.parametrize(("sinks", "message", "remedy"), MISTAKES)
def test_mistakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sinks: str, message: str, remedy: str) -> None:
    monkeypatch.chdir(tmp_path)
    error = mistake(tmp_path, TOP + SOURCES + sinks)
    assert error.message == message
    assert error.remedy == remedy
    assert "geheim" not in str(error)
