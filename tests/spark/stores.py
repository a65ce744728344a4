"""Spark's connectors to object stores in the session of the tests."""

from pyspark.sql import SparkSession

from tests.servers import connectors
from tests.servers.server import Place


def connect(spark: SparkSession, place: Place) -> None:
    """Let the running session read and write that place's store: no other test pays for the jars, which are loaded now."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    loaded = {url.getPath() for url in loader.getURLs()}
    for jar in connectors.jars():
        url = jvm.java.io.File(str(jar)).toURI().toURL()
        if url.getPath() not in loaded:
            loader.addURL(url)
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    for name, value in connectors.settings(place).items():
        hadoop.set(name, value)


def disconnect(spark: SparkSession) -> None:
    """Let go of all stores while their servers run: closed at the end of Java's process they would wait for them."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    jvm.org.apache.hadoop.fs.FileSystem.closeAll()
