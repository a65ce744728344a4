"""One Java process a test worker, for drivers that are killed: starting Spark in a warm one costs a fifth of starting another.

A driver that is given it takes it for spark-submit's. The driver alone is killed; Java and its Python workers go on as zombies
until `end_application`, as those of a lost machine may. One driver at a time. Where Java itself shall die, or Spark needs other
jars than Kafka's, a driver starts a Java process of its own, and so does the second one of two.
"""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from py4j.java_gateway import JavaGateway
from pyspark import SparkConf
from pyspark.java_gateway import launch_gateway

from penstock.run.java import use_java
from tests.crash.forked import Forked, unforked
from tests.servers.kafka import connector


@cache
def _gateway() -> JavaGateway:
    use_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    conf = SparkConf(loadDefaults=False).set("spark.jars", ",".join(map(str, connector())))
    return launch_gateway(conf, popen_kwargs={"stderr": subprocess.DEVNULL, "start_new_session": True})


def leader() -> int:
    """Of the session of this Java process and its Python workers."""
    return int(_gateway().proc.pid)


def environment() -> Mapping[str, str]:
    """What a driver's environment needs to use this Java process; nothing of an earlier driver runs in it any more."""
    parameters = _gateway().gateway_parameters
    end_application()
    return {"PYSPARK_GATEWAY_PORT": str(parameters.port), "PYSPARK_GATEWAY_SECRET": parameters.auth_token}


def run(
    words: Sequence[str], *, directory: Path, more: Mapping[str, str] | None = None, forked: bool = False
) -> "subprocess.CompletedProcess[str]":
    """`python WORDS` in `directory`, with `more` in its environment, to its end; nothing of it runs on in this Java process.

    As a user starts it, or `forked`.
    """
    given = {**os.environ, "PYSPARK_PYTHON": sys.executable, **(more or {}), **environment()}
    hadoop = _gateway().jvm.org.apache.hadoop
    hadoop.fs.FileSystem.getLocal(hadoop.conf.Configuration()).setWorkingDirectory(hadoop.fs.Path(str(directory)))
    process = (Forked if forked else unforked)(words, cwd=directory, env=given)
    out, err = process.communicate()
    end_application()
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def end_application() -> None:
    """Stop what a killed driver left: its Spark application with its tasks and Python workers."""
    sessions = _gateway().jvm.org.apache.spark.sql.classic.SparkSession
    left = sessions.getDefaultSession()
    if left.isDefined():
        left.get().sparkContext().stop()
    sessions.clearDefaultSession()
    sessions.clearActiveSession()


def stacks() -> str:
    """What every thread of it does at this moment."""
    if not _gateway.cache_info().currsize:
        return "none"
    threads = _gateway().jvm.java.lang.management.ManagementFactory.getThreadMXBean().dumpAllThreads(True, True)  # noqa: FBT003 - Java takes them so
    return "\n".join(_stack(thread) for thread in threads)


def _stack(thread: Any) -> str:
    at = (f"\tat {frame.toString()}" for frame in thread.getStackTrace())
    return "\n".join([f"{thread.getThreadName()} {thread.getThreadState().toString()} {thread.getLockName() or ''}", *at])


def stop() -> None:
    """Stop the Java process, if there is one."""
    if _gateway.cache_info().currsize:
        gateway = _gateway()
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(timeout=30)
