"""Settings that make a short-lived Spark start in a third of its time, for every Spark that a test starts in any process.

Tests start Spark hundreds of times for a few seconds each. The first compiler tier and the serial collector suit that, and so
do an archive of loaded classes, which is dumped once per Java and PySpark and kept in pytest's cache, and Python processes
of Spark's that need not compile PySpark.
"""

import fcntl
import hashlib
import os
import shlex
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from penstock.errors import DependencyMissing
from penstock.run.java import find_java

JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Xlog:disable", "-Xlog:all=error:stderr")

FILES = "spark.sql.streaming.checkpointFileManagerClass"
_PACKAGE = "org.apache.spark.sql.execution.streaming.checkpointing"
USERS_FILE_MANAGER = f"{_PACKAGE}.FileContextBasedCheckpointFileManager"
"""Spark's default, as users have it: the campaign of random kills and the tests of damaged checkpoints run with it."""
FILE_MANAGER = f"{_PACKAGE}.FileSystemBasedCheckpointFileManager"
"""The same files; the default one starts nine processes a batch for them where Hadoop's native library is missing."""

CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",  # not 200 tasks with a file of state each, for a handful of rows
    "spark.python.daemon.module": "preloaded_pyspark_daemon",
    FILES: FILE_MANAGER,
}
WORKERS = Path(__file__).with_name("workers")
"""Where that module is, and what every Python imports that finds it."""

WARM_UP = """
import pathlib, sys, tempfile
from pyspark.sql import SparkSession

def count(batches):
    import pyarrow
    for batch in batches:
        yield pyarrow.RecordBatch.from_pydict({"n": [batch.num_rows]})

spark = SparkSession.builder.master("local[2]").getOrCreate()
with tempfile.TemporaryDirectory() as name:
    incoming = pathlib.Path(name, "incoming")
    incoming.mkdir()
    incoming.joinpath("rows.csv").write_text("n,s,t\\n1,a,2024-01-01T00:00:00Z\\n2,b,2024-01-02T00:00:00Z\\n")
    rows = spark.readStream.schema("n INT, s STRING, t TIMESTAMP").option("header", True).csv(str(incoming))
    rows = rows.selectExpr("*", "xxhash64(*) AS h")
    query = rows.writeStream.foreachBatch(lambda df, _: df.mapInArrow(count, "n LONG").collect())
    query.trigger(availableNow=True).option("checkpointLocation", name + "/checkpoint").start().awaitTermination()
spark.stop()
"""


def use(cache: Path) -> None:
    """Have every Spark that this process starts, and what it starts in turn, use them."""
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path not in {"", str(WORKERS)}]
    os.environ["PYTHONPATH"] = os.pathsep.join([*paths, str(WORKERS)])
    os.environ.setdefault("PYSPARK_SUBMIT_ARGS", submit_args(cache))
    with suppress(ImportError):
        _remember_classes()


def _remember_classes() -> None:
    """Have this process ask Java once for each class that it names.

    PySpark names them hundreds of times a query. For a name without a package Java looks into each of 300 jars, several times.
    """
    from py4j import protocol
    from py4j.java_gateway import GatewayClient

    send, asked, classes = GatewayClient.send_command, protocol.REFLECTION_COMMAND_NAME + "u\n", dict[str, str]()

    def remembering(client: GatewayClient, command: str, *arguments: Any, **named: Any) -> Any:
        answer = classes.get(command) or send(client, command, *arguments, **named)
        if command.startswith(asked) and answer.startswith(protocol.SUCCESS_CLASS):
            classes[command] = answer
        return answer

    GatewayClient.send_command = remembering


def submit_args(cache: Path) -> str:
    """The value of PYSPARK_SUBMIT_ARGS; dumps the archive of classes into `cache` if it is not there yet."""
    archive = _archive(cache)
    return _args(*JVM, *(["-Xshare:auto", f"-XX:SharedArchiveFile={archive}"] if archive else []))


def java_options() -> str:
    """Those of every Spark that this process starts, once `submit_args` stand in its environment."""
    words = shlex.split(os.environ["PYSPARK_SUBMIT_ARGS"])
    return words[words.index("--driver-java-options") + 1]


def _args(*jvm: str) -> str:
    settings = {**CONF, "spark.executor.extraJavaOptions": " ".join(jvm)}
    conf = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    return shlex.join([*conf, "--driver-java-options", " ".join(jvm), "pyspark-shell"])


def _archive(cache: Path) -> Path | None:
    """The archive, or None where it cannot be made: everything works without it, only slower."""
    try:
        import pyspark

        java = find_java(os.environ)
    except (ImportError, DependencyMissing):
        return None
    of = f"{java.home.resolve()} {java.version} {pyspark.__version__} {pyspark.__file__}"
    archive = cache / f"classes-{hashlib.sha256(of.encode()).hexdigest()[:16]}.jsa"
    with archive.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the processes of a run all want it, and one of them makes it
        if not archive.exists():
            _dump(archive, java.home)
    return archive if archive.exists() else None


def _dump(archive: Path, java_home: Path) -> None:
    unfinished = archive.with_suffix(f".{os.getpid()}")
    env = {"JAVA_HOME": str(java_home), "PYSPARK_PYTHON": sys.executable}
    env["PYSPARK_SUBMIT_ARGS"] = _args(*JVM, f"-XX:ArchiveClassesAtExit={unfinished}")
    subprocess.run([sys.executable, "-c", WARM_UP], env={**os.environ, **env}, capture_output=True, check=False)
    if unfinished.exists():
        unfinished.replace(archive)
