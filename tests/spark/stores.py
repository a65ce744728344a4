"""Spark's connectors to object stores in the session of the tests."""

from typing import Any

from pyspark.sql import SparkSession

from tests.servers import connectors
from tests.servers.server import Place


def connect(spark: SparkSession, place: Place) -> None:
    """Let the running session read and write that place's store."""
    load(spark.sparkContext._jvm)
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    for name, value in connectors.settings(place).items():
        hadoop.set(name, value)


def load(jvm: Any) -> None:
    """Load the connectors into a Java process that runs: no other test pays for their jars."""
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    loaded = {url.getPath() for url in loader.getURLs()}
    for jar in connectors.jars():
        url = jvm.java.io.File(str(jar)).toURI().toURL()
        if url.getPath() not in loaded:
            loader.addURL(url)


def disconnect(jvm: Any) -> None:
    """Let go of all stores while their servers run: closed at the end of Java's process they would wait for them."""
    jvm.org.apache.hadoop.fs.FileSystem.closeAll()
