"""The page about Kafka as a source, command by command; lag, time to loss and the group for lag tools, on a real broker."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from tests.architecture.reading import ROOT
from tests.crash.commandline import Ended, penstock
from tests.crash.kafka_world import create
from tests.servers.fixtures import server, unique
from tests.servers.kafka import KafkaServer, connector

PAGE = (ROOT / "docs" / "howto" / "kafka_source.md").read_text()
[PIPELINE] = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
COMMANDS = [line.split("#")[0] for line in re.findall(r"^penstock .*$", PAGE, re.MULTILINE)]
HOUR_MS = 3_600_000


@pytest.fixture
def topic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The page's pipeline on a topic of this test's own, which keeps records for an hour."""
    name = create(unique("orders"), 3, retention_ms=str(HOUR_MS))
    text = PIPELINE.replace("subscribe: orders", f"subscribe: {name}").replace("penstock-orders", f"group-{name}")
    (tmp_path / "kafka.yaml").write_text(text)
    monkeypatch.setenv("KAFKA", server("kafka").bootstrap)
    monkeypatch.chdir(tmp_path)
    return name


def produce(topic: str, count: int, **more: Any) -> "Counter[tuple[object, ...]]":
    producer = Producer({"bootstrap.servers": server("kafka").bootstrap, "log_level": 0})
    for number in range(count):
        producer.produce(topic, f"value {number}", key=f"key {number}", partition=number % 3, **more)
    assert producer.flush(60) == 0
    return Counter((topic, number % 3, number // 3, f"key {number}", f"value {number}") for number in range(count))


def run(command: str) -> Ended:
    return penstock(*shlex.split(command)[1:])


def lag_of(command: str = "penstock status kafka.yaml --json") -> dict[str, Any]:
    [lag] = json.loads(run(command).out)["lag"]
    return lag  # type: ignore[no-any-return]


@pytest.mark.usefixtures("spark")
def test_the_page_works(topic: str, tmp_path: Path) -> None:
    sent = produce(topic, 90)
    for command in COMMANDS:
        done = run(command)
        assert done.code == 0, f"{command}\n{done}"
    table = pyarrow.dataset.dataset(tmp_path / "lake", format="parquet").to_table()
    names = ("topic", "partition", "offset", "key", "value")
    assert Counter(zip(*(table[name].to_pylist() for name in names), strict=True)) == sent
    assert mirrored(topic) == {0: 30, 1: 30, 2: 30}


@pytest.mark.usefixtures("spark")
def test_lag_and_time_to_loss_are_told_without_spark(topic: str) -> None:
    produce(topic, 90)
    assert run("penstock run kafka.yaml").code == 0
    assert (lag_of()["records"], lag_of()["behind_ms"], lag_of()["loss_in_ms"], lag_of()["lost"]) == (0, None, None, 0)
    written_ms = time.time_ns() // 1_000_000 - 50 * 60_000
    produce(topic, 30, timestamp=written_ms)
    lag = lag_of()
    now_ms = time.time_ns() // 1_000_000
    assert (lag["records"], lag["retention_ms"]) == (30, HOUR_MS)
    assert 50 * 60_000 <= lag["behind_ms"] <= now_ms - written_ms
    assert lag["loss_in_ms"] == HOUR_MS - lag["behind_ms"]
    checked = run("penstock check kafka.yaml")
    assert checked.code == 1, checked
    assert "30 records behind, the oldest written" in " ".join(checked.out.split())
    shown = " ".join(run("penstock status kafka.yaml").out.split())
    assert "Kafka may remove it in" in shown
    assert run("penstock run kafka.yaml").code == 0
    assert run("penstock check kafka.yaml").code == 0
    assert mirrored(topic) == {0: 40, 1: 40, 2: 40}


@pytest.mark.usefixtures("spark")
def test_a_group_that_has_members_keeps_no_batch_back(topic: str) -> None:
    produce(topic, 9)
    member = Consumer({"bootstrap.servers": server("kafka").bootstrap, "group.id": f"group-{topic}", "log_level": 0})
    joined: list[object] = []
    member.subscribe([topic], on_assign=lambda _, parts: joined.extend(parts))
    while not joined:
        member.poll(0.1)
    done = run("penstock run kafka.yaml --json")
    member.close()
    assert done.code == 0, done
    assert f"could not be shown as those of group 'group-{topic}'" in done.out
    assert done.last["rows_in"] == 9


@pytest.mark.usefixtures("spark")
def test_a_broker_that_is_not_there_is_told(topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    produce(topic, 3)
    assert run("penstock run kafka.yaml").code == 0
    monkeypatch.setenv("KAFKA", "127.0.0.1:1")
    status = json.loads(run("penstock status kafka.yaml --json").out)
    assert status["lag"] == []
    assert "Kafka of source 'orders' at *** does not answer" in status["lag_unknown"][0]
    refused = run("penstock run kafka.yaml")
    assert refused.code == 75, refused
    assert "Kafka of source 'orders' at *** does not answer" in refused.err


MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
LOGIN = f"""      kafka.security.protocol: SASL_PLAINTEXT
      kafka.sasl.mechanism: PLAIN
      kafka.sasl.jaas.config: {MODULE} username="ann" password="${{PASSWORD}}";
      startingOffsets: earliest
"""
SECRET = "geheimes-wort"


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[KafkaServer]:
    """A broker that lets in whoever knows the word, on one of its ports."""
    running = KafkaServer(str(shutil.which("java")), tmp_path)
    running.proxied = running.behind
    try:
        running.create(
            listener_security_protocol_map="PLAINTEXT:PLAINTEXT,PROXIED:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
            listener_name_proxied_sasl_enabled_mechanisms="PLAIN",
            listener_name_proxied_plain_sasl_jaas_config=f'{MODULE} user_ann="{SECRET}";',
        )
        yield running
    finally:
        running.stop()


@pytest.mark.usefixtures("spark")
def test_logins_are_handed_on_and_never_shown(
    topic: str, tmp_path: Path, guarded: KafkaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = guarded.admin()
    admin.create_topics([NewTopic(topic, 3, 1)])[topic].result(60)
    producer = Producer({"bootstrap.servers": guarded.bootstrap, "log_level": 0})
    producer.produce(topic, "value", key="key")
    assert producer.flush(60) == 0
    file = tmp_path / "kafka.yaml"
    file.write_text(file.read_text().replace("      startingOffsets: earliest\n", LOGIN))
    monkeypatch.setenv("KAFKA", guarded.bootstrap_proxied)
    monkeypatch.setenv("PASSWORD", SECRET)
    done = run("penstock run kafka.yaml --json")
    assert done.code == 0, done
    assert done.last["rows_in"] == 1
    monkeypatch.setenv("PASSWORD", "another-word")
    wrong = [run(f"penstock {verb} kafka.yaml") for verb in ("status", "run")]
    assert "refuses access" in wrong[0].out
    assert wrong[1].code == 1, wrong[1]
    assert [said for said in (done, *wrong) if SECRET in str(said) or "another-word" in str(said)] == []


def mirrored(topic: str) -> dict[int, int]:
    """What a lag tool sees."""
    consumer = Consumer({"bootstrap.servers": server("kafka").bootstrap, "group.id": f"group-{topic}", "log_level": 0})
    found = consumer.committed([TopicPartition(topic, number) for number in range(3)], timeout=60)
    consumer.close()
    return {each.partition: each.offset for each in found}


IVY = """<ivysettings><settings defaultResolver="here"/><resolvers><filesystem name="here" m2compatible="true">
<ivy pattern="{root}/[organisation]/[module]/[revision]/[module]-[revision].pom"/>
<artifact pattern="{root}/[organisation]/[module]/[revision]/[artifact]-[revision].[ext]"/>
</filesystem></resolvers></ivysettings>"""
POM = """<project><modelVersion>4.0.0</modelVersion><groupId>{group}</groupId><artifactId>{name}</artifactId>
<version>{version}</version><dependencies>{needs}</dependencies></project>"""
NEEDS = "<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version></dependency>"


def repository(root: Path, *, version: str) -> Path:
    """A Maven repository that has the tests' connector, as if it were the one of that version of Spark; its Ivy settings."""
    jars = {jar.name.rpartition("-")[0]: jar for jar in connector()}
    others = [("test.kafka", name, "1", jar) for name, jar in jars.items() if not name.startswith("spark-sql-kafka")]
    needs = "".join(NEEDS.format(group=group, name=name, version=number) for group, name, number, _ in others)
    ours = next(jar for name, jar in jars.items() if name.startswith("spark-sql-kafka"))
    for group, name, number, jar in [*others, ("org.apache.spark", "spark-sql-kafka-0-10_2.13", version, ours)]:
        folder = root / "maven" / group.replace(".", "/") / name / number
        folder.mkdir(parents=True)
        (folder / f"{name}-{number}.jar").symlink_to(jar)
        text = POM.format(group=group, name=name, version=number, needs=needs if jar is ours else "")
        (folder / f"{name}-{number}.pom").write_text(text)
    (root / "ivy.xml").write_text(IVY.format(root=root / "maven"))
    return root / "ivy.xml"


@pytest.mark.parametrize("has_it", [True, False])
@pytest.mark.parametrize("reader", ["auto", "spark"])
def test_nobody_names_a_jar(topic: str, tmp_path: Path, reader: str, *, has_it: bool) -> None:
    """Where no repository has it, Penstock reads by itself, unless the connector was asked for."""
    import pyspark

    produce(topic, 3)
    ivy = repository(tmp_path, version=pyspark.__version__ if has_it else "1.0.0")
    conf = {"spark.jars.ivySettings": str(ivy), "spark.jars.ivy": str(tmp_path / "ivy"), "spark.ui.enabled": False}
    with (tmp_path / "kafka.yaml").open("a") as file:
        file.write(f"spark: {{master: 'local[1]', conf: {json.dumps(conf)}}}\n")
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "run", "kafka.yaml", "--json", "--set", f"sources.orders.reader={reader}"],
        env={name: value for name, value in os.environ.items() if name != "PENSTOCK_KAFKA_JARS"},
        capture_output=True,
        text=True,
        check=False,
    )
    named = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
    missing = f"No Maven repository that Spark asks from here has {named}, so Spark did not start."
    if has_it or reader == "auto":
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout.splitlines()[-1])["rows_in"] == 3
        assert noted_ids(tmp_path) == (not has_it)
        assert (missing in done.stderr) == (not has_it)
        return
    assert done.returncode == 1, done.stderr
    assert missing in done.stdout
    assert "PENSTOCK_KAFKA_JARS" in done.stdout


def noted_ids(root: Path) -> bool:
    """Whether topics stand in the checkpoint with their ids, as Penstock's own reader writes them."""
    return " id " in (root / "state" / "orders" / "checkpoint" / "offsets" / "0").read_text()


@pytest.mark.usefixtures("spark")
def test_the_page_works_without_a_jar(topic: str, tmp_path: Path) -> None:
    file = tmp_path / "kafka.yaml"
    file.write_text(re.sub("reader: auto .*", "reader: python", file.read_text()))
    sent = produce(topic, 90)
    for command in COMMANDS:
        done = run(command)
        assert done.code == 0, f"{command}\n{done}"
    assert "Penstock's own reader" in run("penstock check kafka.yaml").out
    table = pyarrow.dataset.dataset(tmp_path / "lake", format="parquet").to_table()
    names = ("topic", "partition", "offset", "key", "value")
    assert Counter(zip(*(table[name].to_pylist() for name in names), strict=True)) == sent
    assert mirrored(topic) == {0: 30, 1: 30, 2: 30}
    assert noted_ids(tmp_path)
    [row] = json.loads(run("penstock history kafka.yaml --json --batch 0").out)
    [offsets] = row["offsets"]
    assert offsets["end"] == json.dumps({topic: {str(number): 30 for number in range(3)}}, separators=(",", ":"))
    assert row["topics"][0]["partitions"]["0"] == {"start": 0, "end": 30, "low": 0, "high": 30}


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("first", ["spark", "python"])
def test_a_pipeline_goes_on_with_either_reader_but_in_its_first_batch(topic: str, tmp_path: Path, first: str) -> None:
    other = {"spark": "python", "python": "spark"}[first]
    sent = produce(topic, 30)
    died = penstock("run", "kafka.yaml", "--set", f"sources.orders.reader={first}", faults="stage.collect=error")
    assert died.code != 0
    refused = run(f"penstock run kafka.yaml --set sources.orders.reader={other}")
    assert refused.code == 3, refused
    assert f"Let it be delivered with `reader: {first}`" in " ".join((refused.out + refused.err).split())
    for reader in (first, other, first):
        assert run(f"penstock run kafka.yaml --set sources.orders.reader={reader}").code == 0
        table = pyarrow.dataset.dataset(tmp_path / "lake", format="parquet").to_table()
        assert Counter(table["value"].to_pylist()) == Counter(str(row[4]) for row in sent.elements())
        sent += produce(topic, 30)
    assert run("penstock verify kafka.yaml").code == 0
