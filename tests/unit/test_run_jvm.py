"""How the JVM gets its settings: no secret on a command line, and what Spark redacts."""

import logging
import os
import re
import stat
from pathlib import Path

import pytest
from tests.unit.secret_places import PLACES, VALID, text_fields

from penstock.run import jvm
from penstock.run.jvm import OPTIONS, SETTINGS, TEXTS, QuerySecrets, redactions, secrets_of
from penstock.spec.load import load
from penstock.spec.pipeline import PipelineSettings
from penstock.support.secret import Secret, scrub

SECRET = {"spark.own.plain": Secret("from-environment"), "spark.hadoop.fs.key.password": "literal-one"}
PUBLIC = {"spark.master": "local[2]", "spark.app.name": "flights", "spark.sql.shuffle.partitions": "8"}


class Launched:
    """What was handed to the process that PySpark would start."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.conf: dict[str, str] = {}
        self.arguments, self.properties, self.mode, self.ui = "", "", 0, None

        def launch(conf):
            self.conf = dict(conf.getAll())
            self.arguments, self.ui = os.environ.get("PYSPARK_SUBMIT_ARGS", ""), os.environ.get("SPARK_LOCAL_IP")
            found = re.search(r"--properties-file (\S*penstock-\S+) ", self.arguments)
            if found:
                self.file = Path(found[1])
                self.properties, self.mode = self.file.read_text(), stat.S_IMODE(self.file.stat().st_mode)

        monkeypatch.setattr("pyspark.SparkContext._ensure_initialized", launch)
        monkeypatch.setattr("pyspark.SparkContext._jvm", None)


@pytest.fixture(name="launched")
def _launched(monkeypatch: pytest.MonkeyPatch) -> Launched:
    for name in ("PYSPARK_SUBMIT_ARGS", "SPARK_LOCAL_IP"):
        monkeypatch.delenv(name, raising=False)
    return Launched(monkeypatch)


def test_secrets_go_through_a_file_that_nobody_else_reads_and_that_is_gone_afterwards(launched: Launched) -> None:
    jvm.start_jvm({**PUBLIC, **SECRET})
    assert launched.conf == PUBLIC
    assert launched.arguments.endswith(" --load-spark-defaults pyspark-shell")
    assert [value for value in SECRET.values() if value in launched.arguments] == []
    assert launched.mode == 0o600
    assert len(launched.properties.splitlines()) == len(SECRET)
    assert not launched.file.exists()
    assert "PYSPARK_SUBMIT_ARGS" not in os.environ


def test_a_start_that_fails_leaves_no_file(launched: Launched, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(conf):
        launched.file = Path(os.environ["PYSPARK_SUBMIT_ARGS"].split()[1])
        raise RuntimeError("no Java")

    monkeypatch.setattr("pyspark.SparkContext._ensure_initialized", fail)
    with pytest.raises(RuntimeError):
        jvm.start_jvm(SECRET)
    assert not launched.file.exists()
    assert "PYSPARK_SUBMIT_ARGS" not in os.environ


def test_without_a_secret_nothing_is_changed(launched: Launched) -> None:
    jvm.start_jvm({**PUBLIC, "spark.master": "spark://host:7077"})
    assert (launched.arguments, launched.ui) == ("", None)


def test_the_users_own_properties_file_is_kept(launched: Launched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--properties-file /etc/mine.conf pyspark-shell")
    jvm.start_jvm({**PUBLIC, **SECRET})
    assert launched.conf == PUBLIC
    assert launched.arguments == "--properties-file /etc/mine.conf pyspark-shell"


@pytest.mark.parametrize(
    ("settings", "arguments", "address"),
    [
        ({"spark.master": "local[*]"}, "", "127.0.0.1"),
        (
            {"spark.master": "local[*]", "spark.driver.host": "localhost", "spark.driver.bindAddress": "127.0.0.1"},
            "",
            "127.0.0.1",
        ),
        ({"spark.master": "local[*]", "spark.driver.bindAddress": "0.0.0.0"}, "", None),
        ({"spark.master": "local[*]", "spark.driver.host": "db7"}, "", None),
        ({"spark.master": "local[*]"}, "--conf spark.driver.bindAddress=0.0.0.0 pyspark-shell", None),
        ({"spark.master": "local[*]"}, "--master yarn pyspark-shell", None),
        ({}, "--master local pyspark-shell", "127.0.0.1"),
        ({"spark.master": "spark://host:7077"}, "", None),
        ({}, "", None),
    ],
)
def test_spark_on_this_machine_alone_listens_for_it_alone(
    launched: Launched, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], arguments: str, address: str | None
) -> None:
    if arguments:
        monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", arguments)
    jvm.start_jvm(settings)
    assert launched.ui == address
    assert "SPARK_LOCAL_IP" not in os.environ


def test_an_address_in_the_environment_is_kept(launched: Launched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_IP", "10.0.0.7")
    jvm.start_jvm({"spark.master": "local[*]"})
    assert (launched.ui, os.environ["SPARK_LOCAL_IP"]) == ("10.0.0.7", "10.0.0.7")


def test_java_options_from_the_environment_are_warned_of(launched: Launched, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        jvm.start_jvm({"spark.driver.extraJavaOptions": Secret("-Dpassword=geheim"), "spark.executor.extraJavaOptions": "-Xss4m"})
    [warning] = caplog.messages
    assert "spark.conf.spark.driver.extraJavaOptions" in warning
    assert "geheim" not in warning


def hides(found: "dict[str, str]", key: str, text: str) -> bool:
    """As Java searches, which takes flags inside of a pattern."""
    return re.search(found[key].replace("(?:(?i)", "(?i:"), text) is not None


def test_what_holds_a_secret_is_redacted_and_nothing_else() -> None:
    secrets = QuerySecrets(names=frozenset({"own.Name", "pin"}), values=frozenset({"value-of-option", "1234"}))
    found = dict(redactions({**PUBLIC, **SECRET}, secrets, running=lambda _: None))
    for name in (*SECRET, "fs.key.password", "own.plain", TEXTS, "any.secret"):
        assert hides(found, SETTINGS, name), name
    assert not [name for name in (*PUBLIC, "spark.own.plainer", "xspark.own.plain") if hides(found, SETTINGS, name)]
    assert [hides(found, OPTIONS, name) for name in ("own.Name", "own.name", "ownXname", "header", "jdbcUrl")] == [1, 1, 0, 0, 1]
    texts = ("a -> from-environment,", "literal-one", "x value-of-option y", "value-of", "1234")
    assert [hides(found, TEXTS, text) for text in texts] == [True, True, True, False, False]


def test_the_users_own_pattern_is_extended_and_never_replaced() -> None:
    of_session = {OPTIONS: "(?i)host", TEXTS: "[0-9]{16}"}
    found = dict(redactions({**SECRET, SETTINGS: "(?i)mine"}, QuerySecrets(), running=of_session.get))
    assert [hides(found, SETTINGS, name) for name in ("spark.MINE", "spark.own.plain", "password")] == [True, True, False]
    assert [hides(found, OPTIONS, name) for name in ("Host", "url")] == [True, False]
    assert [hides(found, TEXTS, text) for text in ("card 4111111111111111", "from-environment", "12")] == [True, True, False]
    again = redactions(SECRET, QuerySecrets(), running=found.get)
    assert again[OPTIONS] == found[OPTIONS], "a second session in the process adds nothing"


def test_without_a_secret_sparks_patterns_stay() -> None:
    assert redactions(PUBLIC, QuerySecrets(), running=lambda _: None) == {}


def written(directory: Path, *lines: str) -> PipelineSettings:
    file = directory / "f.yaml"
    file.write_text("\n".join(["pipeline: p", "home: ./h", *lines]))
    return load(file)


def redacted(settings: PipelineSettings, text: str) -> str:
    return re.sub(redactions({}, secrets_of(settings), running=lambda _: None)[TEXTS], "?", text)


@pytest.mark.parametrize("place", [name for name in VALID if any(text_fields()[field].marked for field in PLACES[name].fields)])
def test_values_of_the_environment_in_a_query_are_redacted_and_in_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    value = f"geheim-{place}"
    monkeypatch.setenv("S", value)
    settings = load(PLACES[place].write(tmp_path))
    assert redacted(settings, f"Filter NOT (text#1 = {value})") == "Filter NOT (text#1 = ?)"
    assert scrub(f"near `'{value}')`") == "near `'***')`"
    assert value not in f"{settings!r} {settings.shown()}"


def test_literals_in_a_value_are_redacted_as_spark_prints_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIVEN", r"""a = 'it\'s secret' AND b = "wort-wort" AND c = 12""")
    settings = written(tmp_path, "sources: {s: {format: rate}}", 'sinks: {m: {type: console, where: "${GIVEN}"}}')
    assert redacted(settings, "(((a = it's secret) AND (b = wort-wort)) AND (c = 12))") == "(((a = ?) AND (b = ?)) AND (c = 12))"
    assert scrub(r"""it\'s secret, "it's secret", 'wort-wort'""") == "***, \"***\", '***'"


def test_sources_with_an_option_of_one_name_keep_their_secrets_each(tmp_path: Path) -> None:
    sources = "sources: {a: {format: rate, options: {password: first-one}}, b: {format: rate, options: {password: other-one}}}"
    settings = written(tmp_path, sources, "transform: {sql: SELECT * FROM a}", "sinks: {m: {type: console}}")
    assert redacted(settings, "first-one other-one") == "? ?"


def test_what_reaches_spark_by_other_ways_is_redacted_too(tmp_path: Path) -> None:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username=\\"u\\" password=\\"in-the-login\\";'
    settings = written(
        tmp_path,
        "sources:",
        "  k: {format: kafka, options: {kafka.bootstrap.servers: 'b:9092', subscribe: t, kafka.sasl.mechanism: PLAIN,",
        f'    kafka.security.protocol: SASL_SSL, kafka.sasl.jaas.config: "{jaas}"}}}}',
        "  f: {format: csv, schema: id INT, path: 'ftp://u:in-the-path@h/x'}",
        "transform: {sql: SELECT * FROM k}",
        "sinks: {m: {type: console}}",
    )
    given = secrets_of(settings)
    assert {"kafka.sasl.jaas.config", "client.sasl.password", "path"} <= given.names
    assert redacted(settings, "[client.sasl.password=in-the-login]") == "[client.sasl.password=?]"
    assert redacted(settings, "Relation ftp://u:in-the-path@h/x csv") == "Relation ? csv"


def test_no_group_of_a_pattern_is_repeated() -> None:
    """Java searches for `(a|b)*` by calling itself for each letter, and Spark has it search plans of any length."""
    secrets = QuerySecrets(names=frozenset({"a(b|c)*", "plain"}), values=frozenset({"(geheim|secret)*", "))++((", "a{2}(b){3}"}))
    found = redactions({**SECRET, SETTINGS: "(?i)mine"}, secrets, running=lambda _: None)
    again = redactions({}, QuerySecrets(values=frozenset({"another-one"})), running=found.get)
    for pattern in (*found.values(), *again.values()):
        assert re.search(r"\)[*+?{]", re.sub(r"\\.", "", pattern)) is None
    assert re.sub(found[TEXTS], "?", "x (geheim|secret)* y") == "x ? y"
