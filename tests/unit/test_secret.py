import json
import pickle

import pytest

from penstock.spec.sink import PythonSink
from penstock.spec.source import Source
from penstock.spec.table import PostgreSQL
from penstock.support.secret import Secret, looks_secret, redact, remember, scrub


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ann:geheim@db.example/flights", "postgresql://ann:***@db.example/flights"),
        ("postgresql://ann:ge@he/im:x@db.example/flights", "postgresql://ann:***@db.example/flights"),
        ("postgresql://:geheim@db/flights?sslmode=require", "postgresql://:***@db/flights?sslmode=require"),
        ("az://flights@jfkaccount/raw?sv=1&sig=abc%2F", "az://flights@jfkaccount/raw?sv=***&sig=***"),
        ("s3://bucket/key", "s3://bucket/key"),
        ("Server=x;Password=geheim;Database=y", "Server=x;Password=***;Database=y"),
        ("file:///data/plain", "file:///data/plain"),
    ],
)
def test_redact_hides_credentials_and_nothing_else(url: str, shown: str) -> None:
    assert redact(url) == shown


def test_a_secret_is_a_string_that_hides_itself() -> None:
    secret = Secret("geheim")
    assert secret == "geheim"
    assert "geheim" not in repr({"password": secret})
    assert pickle.loads(pickle.dumps(secret)) == "geheim"


def test_settings_hide_secrets_and_options_named_like_one() -> None:
    source = Source(
        format="own", options={"user": Secret("ann-from-environment"), "kafka.ssl.key.password": "literal-pw", "n": 1}
    )
    assert source.options == {"user": "ann-from-environment", "kafka.ssl.key.password": "literal-pw", "n": "1"}
    for text in (repr(source), str(source), json.dumps(source.shown())):
        assert "ann-from-environment" not in text
        assert "literal-pw" not in text
        assert "kafka.ssl.key.password" in text


@pytest.mark.parametrize(
    ("name", "hidden"),
    [("ssl.key.pem", True), ("kafka.ssl.keystore.key", True), ("ssl.certificate.pem", False), ("key.path", False)],
)
def test_a_private_key_among_options_is_a_secret(name: str, hidden: bool) -> None:  # noqa: FBT001 - a case
    assert looks_secret(name) is hidden


def test_options_of_a_user_written_sink_are_hidden_too() -> None:
    sink = PythonSink(python="pkg.mod:Sink", api_key="literal-key", url="http://ann:pw-in-url@host/", depth=3)
    assert sink.options == {"api_key": "literal-key", "url": "http://ann:pw-in-url@host/", "depth": 3}
    given = {"python": "pkg.mod:Sink", "api_key": "***", "url": "http://ann:***@host/", "depth": 3}
    assert sink.shown() == {**given, "where": None, "select": [], "exclude": []}


def test_scrub_hides_what_settings_remembered() -> None:
    Source(format="own", options={"password": "remembered-by-settings"})
    remember("postgresql://ann:remembered-of-url@host/db")
    text = scrub("login with remembered-by-settings or remembered-of-url failed at mysql://bob:unknown@host/")
    assert text == "login with *** or *** failed at mysql://bob:***@host/"


def test_scrub_leaves_short_values_alone() -> None:
    Source(format="own", options={"header": Secret("true")})
    assert scrub("this is true") == "this is true"


def test_a_database_is_shown_without_its_password() -> None:
    sink = PostgreSQL(url="postgresql://ann:ge%40heim@host:5432/db?sslmode=require&password=geheim", table="t")
    for shown in (repr(sink), str(sink.shown()), sink.database):
        assert "geheim" not in shown
        assert "ge%40heim" not in shown
        assert "ann:***@host:5432/db" in shown
