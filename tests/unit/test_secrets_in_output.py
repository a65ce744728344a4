"""A marker secret at every place of a pipeline file is in no output: text, --json, --debug, errors of what cannot be reached."""

from functools import partial
from pathlib import Path

import pytest
from tests.crash.commandline import penstock

from penstock.run.status import places_of
from penstock.spec.load import load

MARKER = "mArKeR-se/c:r=et?"
QUOTED = "mArKeR-se%2Fc%3Ar%3Det%3F"
NOBODY = "127.0.0.1:1"
TOP = "pipeline: p\nhome: ./state\n"
SOURCE = "sources: {s: {format: rate}}\n"
SINK = "sinks: {m: {type: console}}\n"
PLACES = {
    "spark.conf": TOP + "spark: {conf: {spark.own: '${S}', spark.my.password: SECRET}}\n" + SOURCE + SINK,
    "source option": TOP + "sources: {s: {format: rate, options: {own: '${S}', password: SECRET}}}\n" + SINK,
    "kafka source": TOP
    + f"sources: {{s: {{format: kafka, options: {{kafka.bootstrap.servers: '{NOBODY}', subscribe: t, kafka.security.protocol: "
    "SASL_PLAINTEXT, kafka.sasl.mechanism: PLAIN, kafka.sasl.jaas.config: 'org.apache.kafka.common.security.plain."
    'PlainLoginModule required username="u" password="SECRET";\'}}}\n' + SINK,
    "kafka sink": TOP
    + SOURCE
    + f"sinks: {{k: {{type: kafka, bootstrap: '{NOBODY}', topic: t, options: {{security.protocol: SASL_PLAINTEXT, "
    "sasl.mechanism: PLAIN, sasl.username: u, sasl.password: SECRET}}}\n",
    "account option": TOP
    + SOURCE
    + "sinks: {lake: {type: parquet, accounts: {a: {url: 's3://bucket/x', options: {access_key_id: '${S}', secret_access_key: "
    f"SECRET, endpoint: 'http://{NOBODY}', region: eu}}}}}}}}}}\n",
    "postgres sink": TOP + SOURCE + f"sinks: {{w: {{type: postgres, url: 'postgresql://u:QUOTED@{NOBODY}/d', table: t}}}}\n",
    "mysql sink": TOP + SOURCE + f"sinks: {{w: {{type: mysql, url: 'mysql://u:QUOTED@{NOBODY}/d', table: t}}}}\n",
    "cassandra sink": TOP
    + SOURCE
    + f"sinks: {{w: {{type: cassandra, url: 'cassandra://u:QUOTED@{NOBODY}/k', table: t, key: [id]}}}}\n",
    "dbapi sink": TOP
    + SOURCE
    + "sinks: {w: {type: dbapi, driver: psycopg, connect: {conninfo: 'host=127.0.0.1 port=1', password: SECRET}, table: t}}\n",
    "postgres ledger": TOP + SOURCE + SINK + f"ledger: 'postgresql://u:QUOTED@{NOBODY}/d'\n",
    "mysql ledger": TOP + SOURCE + SINK + f"ledger: 'mysql://u:QUOTED@{NOBODY}/d'\n",
    "sink of one's own": TOP + SOURCE + "sinks: {w: {python: 'nowhere:Sink', token: SECRET, user: '${S}'}}\n",
    "a key that is not known": TOP + SOURCE + SINK + "passwort: '${S}'\n",
    "a wrong type": TOP + "spark: '${S}'\n" + SOURCE + SINK,
}


WAITS_FOR_BROKERS = {("doctor", "kafka source"), *((verb, "kafka sink") for verb in ("verify", "doctor", "recover"))}
CASES = [(verb, place) for place in PLACES for verb in ("status", "verify", "doctor", "recover")]


@pytest.mark.parametrize(("verb", "place"), [case for case in CASES if case not in WAITS_FOR_BROKERS])
def test_no_output_holds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, verb: str) -> None:
    monkeypatch.setenv("S", MARKER)
    monkeypatch.setattr("penstock.commit.verification.TRIES", 2)  # what cannot be reached is asked again for half a minute
    if place == "kafka sink":  # its client gives no answer, however long it is waited for
        monkeypatch.setattr("penstock.run.status.places_of", partial(places_of, within_s=0.5))
    file = tmp_path / "pipeline.yaml"
    file.write_text(PLACES[place].replace("SECRET", MARKER).replace("QUOTED", QUOTED))
    for words in ([verb, str(file), "--show-values"], [verb, str(file), "--json"]):
        ended = penstock(*words)
        assert [each for each in (MARKER, QUOTED) if each in str(ended)] == []
        assert ended.out + ended.err


@pytest.mark.parametrize("place", [place for place in PLACES if place not in {"a key that is not known", "a wrong type"}])
def test_each_place_is_a_valid_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    monkeypatch.setenv("S", MARKER)
    file = tmp_path / "pipeline.yaml"
    file.write_text(PLACES[place].replace("SECRET", MARKER).replace("QUOTED", QUOTED))
    assert MARKER not in repr(load(file)) + str(load(file).shown())
