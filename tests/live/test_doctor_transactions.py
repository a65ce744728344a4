"""`penstock doctor` on topics whose readers wait for a transaction that nobody ended."""

import json
from pathlib import Path
from typing import Any

import pytest
from kafka.admin import KafkaAdminClient
from tests.live.test_kafka_transactions import lingering, options, stable_end
from tests.servers.fixtures import server, unique

from penstock.cli.app import main
from penstock.kafka.transactions import open_transactions

pytestmark = pytest.mark.usefixtures("_here")


@pytest.fixture
def topic() -> str:
    return str(server("kafka").topic(unique("doctored"), partitions=2))


@pytest.fixture
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topic: str) -> None:
    monkeypatch.chdir(tmp_path)
    bootstrap = server("kafka").bootstrap
    Path("orders.yaml").write_text(
        "pipeline: orders\nhome: ./state\nsources: {events: {format: rate-micro-batch}}\n"
        f"sinks:\n  events: {{type: kafka, bootstrap: '{bootstrap}', topic: {topic}}}\n"
    )


def code_of(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["doctor", "orders.yaml", *arguments])
    return int(ended.value.code or 0)


def doctor(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Any:
    assert code_of("--json", *arguments) == code
    return json.loads(capsys.readouterr().out)


def test_it_tells_who_holds_what_up_since_when(capsys: pytest.CaptureFixture[str], topic: str) -> None:
    with lingering(topic, partition=1) as (name, _):
        [found] = doctor(capsys)["transactions"]
        assert (found["transactional_id"], found["topic"], found["partition"], found["offset"]) == (name, topic, 1, 0)
        assert code_of() == 0
    text = " ".join(capsys.readouterr().out.split())
    assert name in text
    assert f"{topic}-1 offset 0" in text
    assert "1 min 0 s after its begin" in text


def test_a_topic_that_is_read_is_looked_at_too(capsys: pytest.CaptureFixture[str], topic: str) -> None:
    read = f"{{format: kafka, options: {{kafka.bootstrap.servers: '{server('kafka').bootstrap}', subscribe: {topic}}}}}"
    Path("orders.yaml").write_text(
        f"pipeline: orders\nhome: ./state\nsources: {{events: {read}}}\nsinks:\n  out: {{type: console}}\n"
    )
    with lingering(topic) as (name, _):
        assert [one["name"] for one in doctor(capsys)["transactions"]] == [name]
        assert doctor(capsys, "--end", name)["transactions"] == []


def test_it_ends_one_by_its_name(capsys: pytest.CaptureFixture[str], topic: str) -> None:
    with lingering(topic) as (name, _):
        assert doctor(capsys, "--end", name)["transactions"] == []
        assert stable_end(topic) == 4


def test_one_that_is_not_there_is_not_ended(capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of("--end", "nobody") == 2
    assert "No transaction 'nobody' is open on the topics of 'orders'" in " ".join(capsys.readouterr().err.split())


def test_one_that_hangs_needs_a_hand(capsys: pytest.CaptureFixture[str], topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of one whose coordinator has forgotten it."""
    with lingering(topic) as (_, producer):
        [known] = open_transactions(options(), [topic])
        monkeypatch.setattr(KafkaAdminClient, "list_transactions", lambda *_, **__: {})
        [found] = doctor(capsys, code=1)["transactions"]
        assert found["transactional_id"] is None
        assert code_of() == 1
        name = f"{topic}/0/{known.producer_id}"
        assert f"`penstock doctor orders.yaml --end {name}` aborts it" in " ".join(capsys.readouterr().out.split())
        assert doctor(capsys, "--end", name)["transactions"] == []
        producer.abort_transaction(60)
