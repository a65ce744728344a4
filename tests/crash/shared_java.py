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
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from penstock.run.java import use_java
from tests.crash.forked import Forked, unforked
from tests.servers.kafka import connector


class _Starting(Exception):
    pass


class JavaProcess:
    """A Java process for one driver after the other."""

    def __init__(self) -> None:
        use_java()
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        conf = SparkConf(loadDefaults=False).set("spark.jars", ",".join(map(str, connector())))
        self.gateway: JavaGateway = launch_gateway(conf, popen_kwargs={"stderr": subprocess.DEVNULL, "start_new_session": True})

    @property
    def leader(self) -> int:
        """Of the session of this Java process and its Python workers."""
        return int(self.gateway.proc.pid)

    def environment(self) -> Mapping[str, str]:
        """What a driver's environment needs to use this Java process; nothing of an earlier driver runs in it any more."""
        parameters = self.gateway.gateway_parameters
        self.end_application()
        return {"PYSPARK_GATEWAY_PORT": str(parameters.port), "PYSPARK_GATEWAY_SECRET": parameters.auth_token}

    def end_application(self) -> None:
        """Stop what a killed driver left: its Spark application with its tasks and Python workers."""
        contexts = self.gateway.jvm.java.lang.Class.forName("org.apache.spark.SparkContext$")
        for attempt in Retrying(wait=wait_fixed(0.02), stop=stop_after_delay(60), retry=retry_if_exception_type(_Starting)):
            with attempt:
                _require_started(contexts)
        left = contexts.getField("MODULE$").get(None).getActive()
        if left.isDefined():
            left.get().stop()
        sessions = self.gateway.jvm.org.apache.spark.sql.classic.SparkSession
        sessions.clearDefaultSession()
        sessions.clearActiveSession()

    def stop(self) -> None:
        self.gateway.shutdown()
        self.gateway.proc.stdin.close()
        self.gateway.proc.wait(timeout=30)


def _require_started(contexts: Any) -> None:
    """Raise _Starting while the context of a driver that was killed meanwhile is being made: nobody can stop it yet."""
    field = contexts.getDeclaredField("contextBeingConstructed")
    field.setAccessible(True)
    made = field.get(None)
    if made is not None and made.isDefined() and not made.get().isStopped():
        raise _Starting


@cache
def _shared() -> JavaProcess:
    return JavaProcess()


def leader() -> int:
    """As `JavaProcess.leader`, of the one that the tests of this process share."""
    return _shared().leader


def jvm() -> Any:
    """Its classes, to py4j."""
    return _shared().gateway.jvm


def environment() -> Mapping[str, str]:
    """As `JavaProcess.environment`, of the one that the tests of this process share."""
    return _shared().environment()


def end_application() -> None:
    """As `JavaProcess.end_application`, of the one that the tests of this process share."""
    _shared().end_application()


def run(
    words: Sequence[str], *, directory: Path, more: Mapping[str, str] | None = None, forked: bool = False
) -> "subprocess.CompletedProcess[str]":
    """`python WORDS` in `directory`, with `more` in its environment, to its end; nothing of it runs on in this Java process.

    As a user starts it, or `forked`.
    """
    given = {**os.environ, "PYSPARK_PYTHON": sys.executable, **(more or {}), **environment()}
    hadoop = _shared().gateway.jvm.org.apache.hadoop
    hadoop.fs.FileSystem.getLocal(hadoop.conf.Configuration()).setWorkingDirectory(hadoop.fs.Path(str(directory)))
    process = (Forked if forked else unforked)(words, cwd=directory, env=given)
    out, err = process.communicate()
    end_application()
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def stacks() -> str:
    """What every thread of it does at this moment."""
    if not _shared.cache_info().currsize:
        return "none"
    threads = _shared().gateway.jvm.java.lang.management.ManagementFactory.getThreadMXBean().dumpAllThreads(True, True)  # noqa: FBT003 - Java takes them so
    return "\n".join(_stack(thread) for thread in threads)


def _stack(thread: Any) -> str:
    at = (f"\tat {frame.toString()}" for frame in thread.getStackTrace())
    return "\n".join([f"{thread.getThreadName()} {thread.getThreadState().toString()} {thread.getLockName() or ''}", *at])


def stop() -> None:
    """Stop the Java process, if there is one."""
    if _shared.cache_info().currsize:
        _shared().stop()
