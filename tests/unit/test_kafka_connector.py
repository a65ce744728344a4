"""Which setting gives a session Spark's Kafka connector: by Maven, from a directory, or none where something gives it already."""

from pathlib import Path

import pytest

from penstock.errors import DependencyMissing
from penstock.source.kafka.connector import connector_settings, not_found

PACKAGE = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.3.0"
CONNECTOR = "spark-sql-kafka-0-10_2.13-4.3.0.jar"


def spark_home(root: Path, *more: str) -> Path:
    (root / "jars").mkdir()
    for name in ("spark-core_2.13-4.3.0.jar", "scala-library-2.13.17.jar", *more):
        (root / "jars" / name).touch()
    return root


def settings(home: Path, *, conf: dict[str, str] | None = None, submitted: str = "", jars: Path | None = None) -> object:
    environment = {} if jars is None else {"PENSTOCK_KAFKA_JARS": str(jars)}
    return connector_settings(home=home, conf=conf or {}, submitted=submitted, environment=environment)


def directory(root: Path, *names: str) -> Path:
    folder = root / "given"
    folder.mkdir()
    for name in names:
        (folder / name).touch()
    return folder


def test_maven_gets_the_versions_of_the_spark_that_is_there(tmp_path: Path) -> None:
    assert settings(spark_home(tmp_path)) == {"spark.jars.packages": PACKAGE}
    assert settings(tmp_path, conf={"spark.jars.packages": "org.apache.spark:spark-avro_2.13:4.3.0"}) == {
        "spark.jars.packages": PACKAGE
    }


def test_without_a_spark_there_is_nothing_to_say(tmp_path: Path) -> None:
    assert settings(tmp_path) == {}


@pytest.mark.parametrize(
    ("conf", "submitted"),
    [
        ({"spark.jars": f"/opt/{CONNECTOR},/opt/kafka-clients.jar"}, ""),
        ({"spark.jars.packages": "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"}, ""),
        ({}, f"--packages {PACKAGE} pyspark-shell"),
        ({}, f"--jars /opt/{CONNECTOR} pyspark-shell"),
    ],
)
def test_what_was_given_is_left_as_it_is(tmp_path: Path, conf: dict[str, str], submitted: str) -> None:
    assert settings(spark_home(tmp_path), conf=conf, submitted=submitted, jars=tmp_path / "nowhere") == {}


def test_a_spark_that_carries_it_needs_nothing(tmp_path: Path) -> None:
    assert settings(spark_home(tmp_path, CONNECTOR)) == {}


def test_a_directory_is_taken_in_place_of_maven(tmp_path: Path) -> None:
    folder = directory(tmp_path, CONNECTOR, "kafka-clients-3.9.2.jar", "readme.txt")
    assert settings(spark_home(tmp_path), jars=folder) == {"spark.jars": f"{folder}/kafka-clients-3.9.2.jar,{folder}/{CONNECTOR}"}


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (("kafka-clients-3.9.2.jar",), "holds no spark-sql-kafka-0-10"),
        (("spark-sql-kafka-0-10_2.12-3.5.0.jar",), "is built for Scala 2.12, but this Spark runs on Scala 2.13"),
    ],
)
def test_a_directory_without_the_right_one_is_told(tmp_path: Path, names: tuple[str, ...], told: str) -> None:
    with pytest.raises(DependencyMissing, match=told):
        settings(spark_home(tmp_path), jars=directory(tmp_path, *names))


def test_a_version_that_no_repository_has_is_told_with_the_ways_out() -> None:
    log = "::::\n\t\t:: unresolved dependency: org.apache.spark#spark-sql-kafka-0-10_2.13;4.3.0: not found\n\t\t::::"
    found = not_found(log)
    assert found is not None
    assert PACKAGE in found.message
    assert "PENSTOCK_KAFKA_JARS" in found.remedy
    other = not_found(log.replace("spark-sql-kafka-0-10_2.13", "spark-avro_2.13"))
    assert other is not None
    assert "PENSTOCK_KAFKA_JARS" not in other.remedy
    assert not_found("java.lang.OutOfMemoryError") is None
