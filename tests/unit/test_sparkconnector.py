"""Which connector Spark lacks. The texts are what Spark 4.3 and its Hadoop print."""

import pytest

from penstock.checkpoint.spark_checkpoint import SparkCheckpoint
from penstock.errors import Failed
from penstock.run.failure import error_from_query
from penstock.spark.error import connector_remedy

LACKS = """[CANNOT_LOAD_CHECKPOINT_FILE_MANAGER.UNCATEGORIZED] Error loading streaming checkpoint file manager for path={url}. \
java.lang.ClassNotFoundException: Class org.apache.hadoop.fs.{name} not found SQLSTATE: 58030"""


@pytest.mark.parametrize(
    ("text", "package"),
    [
        (LACKS.format(url="s3a://b/x", name="s3a.S3A"), "packages: [org.apache.hadoop:hadoop-aws:3."),
        ("java.lang.ClassNotFoundException: Class org.apache.hadoop.fs.s3a.S3AFileSystem not found", ":hadoop-aws:3."),
        (LACKS.format(url="abfss://c@a.dfs.core.windows.net/x", name="azurebfs.Abfss"), "org.apache.hadoop:hadoop-azure:3."),
        (LACKS.format(url="gs://b/x", name="gs.Gs"), "org.apache.hadoop:hadoop-gcp:3."),
        ('No FileSystem for scheme "gs"', "com.google.cloud.bigdataoss:gcs-connector:VERSION"),
    ],
)
def test_the_package_is_named(text: str, package: str) -> None:
    remedy = connector_remedy(text)
    assert remedy is not None
    assert remedy.startswith("Give Spark its connector")
    assert package in remedy


def test_spark_spells_s3_otherwise() -> None:
    remedy = connector_remedy('No FileSystem for scheme "s3".')
    assert remedy is not None
    assert remedy.startswith("Write s3a:// for s3://, and give Spark its connector")


def test_other_words_name_no_connector() -> None:
    assert connector_remedy("Class org.example.Missing not found") is None
    assert connector_remedy('No FileSystem for scheme "ftps"') is None


def test_a_checkpoint_without_connector() -> None:
    text = LACKS.format(url="s3a://b/x", name="s3a.S3A")
    error = error_from_query(text, checkpoint=SparkCheckpoint("/nowhere"), doing="start")
    assert type(error) is Failed
    assert error.message.startswith("Spark could not start the query, since it lacks a connector: ")
    assert error.message.endswith("Class org.apache.hadoop.fs.s3a.S3A not found.")
    assert "hadoop-aws" in error.remedy
