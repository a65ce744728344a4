"""Kafka by TLS, with passwords and rights: the page's pipeline works with the page's rights, and each that is missing is told."""

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, ResourcePatternType, ResourceType

from penstock.errors import Failed
from penstock.kafka.login_errors import is_refusal
from penstock.sink.kafka.clients import Clients
from penstock.source.kafka import broker
from tests.crash.commandline import Ended, penstock
from tests.servers import kafka_secured
from tests.servers.fixtures import unique
from tests.servers.kafka import records
from tests.servers.kafka_secured import SecuredServer
from tests.spark.test_kafka_copy_page import pipeline_of, section

PAGE = section("TLS, logins and rights")
RIGHTS = [line.removeprefix("kafka-acls ") for line in re.findall(r"^kafka-acls .*$", PAGE, re.MULTILINE)]
RECORDS = 20


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredServer]:
    with kafka_secured.running(tmp_path_factory.mktemp("guarded")) as running:
        yield running


class Safe:
    """The page's pipeline with topics, a user and rights of this test's own."""

    def __init__(self, guarded: SecuredServer, directory: Path) -> None:
        self.guarded, self.file = guarded, directory / "safe.yaml"
        self.user = unique("user")
        self.names = {name: unique(name) for name in ("orders-clean", "orders-safe", "penstock-orders")}
        self.names["subscribe: orders"] = f"subscribe: {unique('orders')}"
        self.source, self.topic = self.names["subscribe: orders"].split()[1], self.names["orders-clean"]
        self.markers = f"penstock.{self.names['orders-safe']}.out"
        self.password = guarded.user(self.user)
        for name in (self.source, self.topic):
            guarded.topic(name, 2, retention_ms="-1", retention_bytes="-1")
        text = self.own(pipeline_of(PAGE)).replace('username="penstock"', f'username="{self.user}"')
        self.file.write_text(text.replace("sasl.username: penstock", f"sasl.username: {self.user}"))
        producer = Producer({"bootstrap.servers": guarded.bootstrap, "log_level": 0})
        for number in range(RECORDS):
            producer.produce(self.source, f"value {number}", key=f"key {number}")
        assert producer.flush(60) == 0

    def own(self, text: str) -> str:
        """The page's words with the names of this test."""
        for name, ours in self.names.items():
            text = re.sub(rf"{re.escape(name)}(?![-\w])", ours, text)
        return text.replace("--topic orders\n", f"--topic {self.source}\n").replace("User:penstock", f"User:{self.user}")

    def penstock(self, verb: str, *more: str, password: str | None = None, ca: Path | None = None) -> Ended:
        """A command as that user, which never prints a password."""
        said = password or self.password
        os.environ["KAFKA_SERVERS"] = self.guarded.bootstrap_proxied
        os.environ["KAFKA_PASSWORD"], os.environ["KAFKA_CA"] = said, str(ca or self.guarded.ca)
        done = penstock(verb, str(self.file), *more)
        assert said not in str(done)
        return done

    def found(self) -> list[str]:
        return sorted(message.value().decode() for message in records(self.guarded.bootstrap, self.topic))

    def rights(self) -> "dict[str, AclBinding]":
        """Those of the page, each alone, by what it is called below."""
        topics = {"rows": self.topic, "markers": self.markers, "source": self.source}
        found = {f"{name} {right}": _allow(self.user, ResourceType.TOPIC, topics[name], right) for name, right in _OF_TOPICS}
        found["transactions Write"] = _allow(
            self.user, ResourceType.TRANSACTIONAL_ID, f"penstock.{self.names['orders-safe']}=", "Write", prefixed=True
        )
        found["group Read"] = _allow(self.user, ResourceType.GROUP, self.names["penstock-orders"], "Read")
        return found


_OF_TOPICS = (
    *(("rows", right) for right in ("Write", "Read", "DescribeConfigs")),
    *(("markers", right) for right in ("Create", "Write", "Read", "DescribeConfigs")),
    *(("source", right) for right in ("Read", "DescribeConfigs")),
)
_KAFKAS = {"DescribeConfigs": "DESCRIBE_CONFIGS"}


def _allow(user: str, kind: Any, name: str, right: str, *, prefixed: bool = False) -> AclBinding:
    pattern = ResourcePatternType.PREFIXED if prefixed else ResourcePatternType.LITERAL
    operation = AclOperation[_KAFKAS.get(right, right.upper())]
    return AclBinding(kind, name, pattern, f"User:{user}", "*", operation, AclPermissionType.ALLOW)


@pytest.fixture
def safe(guarded: SecuredServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Safe:
    for name in ("KAFKA_SERVERS", "KAFKA_PASSWORD", "KAFKA_CA"):
        monkeypatch.setenv(name, "")
    monkeypatch.chdir(tmp_path)
    return Safe(guarded, tmp_path)


@pytest.mark.usefixtures("spark")
def test_the_page_works_with_the_rights_of_the_page_as_kafkas_own_tool_gives_them(safe: Safe, guarded: SecuredServer) -> None:
    assert len(RIGHTS) == 5
    for line in RIGHTS:
        guarded.tool("AclCommand", *shlex.split(safe.own(line + "\n")))
    checked = safe.penstock("check")
    assert checked.code == 0, checked
    assert "kafka-acls" not in checked.out
    done = safe.penstock("run", "--json")
    assert (done.code, done.last["rows_in"]) == (0, RECORDS), done
    assert safe.found() == sorted(f"value {number}" for number in range(RECORDS))
    for verb in ("verify", "status", "doctor"):
        looked = safe.penstock(verb)
        assert looked.code == 0, looked
    assert safe.penstock("doctor", "--json").last["transactions"] == []


@pytest.mark.usefixtures("spark")
def test_who_is_not_let_in_is_told_why(safe: Safe, guarded: SecuredServer) -> None:
    guarded.allow(*safe.rights().values())
    for verb in ("check", "run"):
        wrong = safe.penstock(verb, password="no-such-word")
        assert wrong.code == 1, wrong
        assert "refuses the login" in _flat(wrong)
        untrusted = safe.penstock(verb, ca=guarded.another_ca)
        assert untrusted.code == 1, untrusted
        assert "cannot be reached by TLS" in _flat(untrusted) or "refuses access" in _flat(untrusted)
    assert safe.found() == []


@pytest.mark.timeout(120)
@pytest.mark.parametrize("wrong", ["password", "ca"])
def test_nobody_waits_for_a_broker_that_has_said_no(guarded: SecuredServer, monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    """The client itself tries again until the time for an answer is over."""
    monkeypatch.setattr(broker, "_ANSWER_S", 3600)
    user = unique("user")
    options = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": user,
        "sasl.password": guarded.user(user),
        "ssl.ca.location": str(guarded.ca),
    }
    options |= {"sasl.password": "no-such-word"} if wrong == "password" else {"ssl.ca.location": str(guarded.another_ca)}
    with pytest.raises(Failed, match="refuses access"):
        broker.Broker("orders", {**options, "bootstrap.servers": guarded.bootstrap_proxied}).topic_id("any")
    with pytest.raises(KafkaException) as refused:
        _ = Clients(guarded.bootstrap_proxied, options).admin
    assert is_refusal(refused.value.args[0])


REFUSED = {
    "rows Write": "lacks the right Write on topic '{topic}'",
    "markers Create": "lacks the right Create on topic '{markers}'",
    "transactions Write": "--operation Write --resource-pattern-type prefixed --transactional-id penstock.",
    "source Read": "the right Read on",
}


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("missing", REFUSED)
def test_a_right_that_is_missing_is_named_by_check_and_by_run(safe: Safe, guarded: SecuredServer, missing: str) -> None:
    rights = safe.rights()
    del rights[missing]
    guarded.allow(*rights.values())
    said = REFUSED[missing].format(topic=safe.topic, markers=safe.markers)
    for verb in ("check", "run"):
        done = safe.penstock(verb)
        assert done.code == 1, done
        assert said in _flat(done), done
    assert safe.found() == []
    guarded.allow(safe.rights()[missing])
    done = safe.penstock("run")
    assert done.code == 0, done
    assert len(safe.found()) == RECORDS


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("missing", ["rows Write", "markers Write", "markers Read", "transactions Write"])
def test_a_right_that_is_taken_away_stops_the_next_start_and_loses_nothing(
    safe: Safe, guarded: SecuredServer, missing: str
) -> None:
    rights = safe.rights()
    guarded.allow(*rights.values())
    assert safe.penstock("run").code == 0
    guarded.deny(rights[missing])
    for verb in ("check", "run"):
        done = safe.penstock(verb)
        assert done.code == 1, done
        assert f"--operation {missing.split()[1]}" in _flat(done), done
    guarded.allow(rights[missing])
    assert safe.penstock("run").code == 0
    assert safe.penstock("verify").code == 0
    assert len(safe.found()) == RECORDS


@pytest.mark.usefixtures("spark")
def test_rights_without_which_rows_are_delivered_are_warned_of(safe: Safe, guarded: SecuredServer) -> None:
    rights = safe.rights()
    for name in ("rows Read", "rows DescribeConfigs"):
        del rights[name]
    guarded.allow(*rights.values())
    checked = safe.penstock("check")
    assert checked.code == 0, checked
    for right in ("Read", "DescribeConfigs"):
        assert f"--operation {right} --topic {safe.topic}" in _flat(checked)
    assert safe.penstock("run").code == 0
    assert len(safe.found()) == RECORDS


def _flat(done: Ended) -> str:
    return " ".join((done.out + done.err).split())


def test_the_page_says_what_the_test_gives(guarded: SecuredServer, tmp_path: Path) -> None:
    given = [set(re.findall(r"--operation (\w+)", line)) for line in RIGHTS]
    assert given == [
        {"Write", "Read", "DescribeConfigs"},
        {"Create", "Write", "Read", "DescribeConfigs"},
        {"Write"},
        {"Read", "DescribeConfigs"},
        {"Read"},
    ]
