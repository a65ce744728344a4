"""A server of Spark Connect from the pip package, and clients of it in processes of their own.

PySpark is either a client or has a JVM of its own in one process, and in the process of the tests it has the JVM.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.architecture.reading import ROOT
from tests.crash.commandline import Ended
from tests.crash.forked import Forked
from tests.servers.server import free_port, started, stop
from tests.spark.cluster import HOME

_MAIN = "org.apache.spark.sql.connect.service.SparkConnectServer"
_PATIENCE_S = 300
_TRIES = 5


class ConnectServer:
    """It has the Python, and therefore the packages, of the tests, but what is in `shadows` comes first."""

    def __init__(self, directory: Path, *, shadows: Path | None = None) -> None:
        self.port, self._directory, self._shadows = free_port(), directory, shadows

    @property
    def url(self) -> str:
        return f"sc://127.0.0.1:{self.port}"

    @contextmanager
    def running(self) -> Iterator["ConnectServer"]:
        settings = {
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(self.port),
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.streaming.ui.enabled": "false",
            "spark.log.level": "WARN",
        }
        conf = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
        fast = shlex.split(os.environ["PYSPARK_SUBMIT_ARGS"])[:-1]  # its last word is what a process of PySpark is started for
        env = {"SPARK_HOME": str(HOME), "PYSPARK_PYTHON": sys.executable, "PYSPARK_SUBMIT_ARGS": ""}
        process = started(
            [str(HOME / "bin/spark-submit"), "--class", _MAIN, "--master", "local[2]", *fast, *conf, "spark-internal"],
            port=self.port,
            log=self._directory / "connect.log",
            env={**env, "PYTHONPATH": _path(self._shadows)},
        )
        try:
            yield self
        finally:
            stop(process)

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        """`python -m ARGUMENTS`, whose sessions are here."""
        env = {**os.environ, "SPARK_REMOTE": self.url, "PYSPARK_SUBMIT_ARGS": "", "PYTHONPATH": _path()}
        return Forked(["-m", *arguments], cwd=Path.cwd(), env=env)

    def run(self, *arguments: str) -> Ended:
        """The same, to its end, and again where the machine was too busy for Spark."""
        for _ in range(_TRIES):
            told = ended(self.start(*arguments))
            if not _is_late(told):
                break
        return told

    @contextmanager
    def started(self, *arguments: str, until: Callable[[], bool]) -> Iterator["subprocess.Popen[str]"]:
        """`start`, and what happens then was waited for; killed at the end."""
        process, pause = self.start(*arguments), threading.Event()
        try:
            while not until():
                if process.poll() is not None:
                    told = ended(process)
                    assert _is_late(told), told
                    process = self.start(*arguments)
                pause.wait(0.05)
            yield process
        finally:
            process.kill()
            process.communicate()

    def penstock(self, command: str) -> Ended:
        """A command line of `penstock …`."""
        return self.run(*shlex.split(command))


def ended(process: "subprocess.Popen[str]") -> Ended:
    """Once it has."""
    try:
        out, err = process.communicate(timeout=_PATIENCE_S)
    finally:
        process.kill()
    return Ended(process.returncode, out, err)


def _is_late(told: Ended) -> bool:
    """Spark gives a Python process ten seconds to start, whatever else the machine does."""
    return bool(re.search("within ten seconds|waiting for the Python worker to connect back", told.err))


def _path(*first: Path | None) -> str:
    return os.pathsep.join(map(str, filter(None, [*first, ROOT, ROOT / "src", os.environ.get("PYTHONPATH")])))


def append(source: Mapping[str, object], table: Path, checkpoint: Path) -> None:
    """In a client: all that the source named `s` has now, as Parquet files."""
    from pyspark.sql import SparkSession

    from penstock.source.open import open_source
    from penstock.spec.source import Source

    rows = open_source(SparkSession.builder.getOrCreate(), "s", Source(**source))
    writer = rows.writeStream.format("parquet").option("path", str(table)).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()


if __name__ == "__main__":
    append(json.loads(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]))
