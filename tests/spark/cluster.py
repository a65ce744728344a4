"""A standalone cluster on this machine: a master and workers that look like hosts of their own, from the pip package alone."""

import json
import os
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import pyspark

from tests import fast_spark

HOME = Path(pyspark.__file__).parent
_CLASS = "org.apache.spark.deploy"
_PATIENCE = 600


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


class Cluster:
    """Workers have the addresses 127.0.0.2, 127.0.0.3, …, one core each; Spark repeats a slow task only on another host."""

    def __init__(self, directory: Path, *, workers: int = 2) -> None:
        self._directory, self._workers = directory, workers
        self._port, self._page = free_port(), free_port()
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def url(self) -> str:
        return f"spark://127.0.0.1:{self._port}"

    def __enter__(self) -> "Cluster":
        try:
            self._start_all()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _start_all(self) -> None:
        ports = ["--port", str(self._port), "--webui-port", str(self._page)]
        self._start("master", "127.0.0.1", f"{_CLASS}.master.Master", "--host", "127.0.0.1", *ports)
        self._await(lambda: self._state() is not None)
        for number in range(self._workers):
            host = f"127.0.0.{number + 2}"
            options = ["--host", host, "--webui-port", str(free_port()), "-c", "1", "-m", "1g"]
            self._start(f"worker{number}", host, f"{_CLASS}.worker.Worker", *options, self.url)
        self._await(lambda: self._alive() == self._workers)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            process.wait(30)

    def _start(self, name: str, host: str, *arguments: str) -> None:
        environment = {
            **os.environ,
            "SPARK_HOME": str(HOME),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": host,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": fast_spark.java_options(),
            "SPARK_WORKER_DIR": str(self._directory / "work"),
        }
        environment.pop("PYSPARK_SUBMIT_ARGS", None)
        with (self._directory / f"{name}.log").open("wb") as log:
            command = [str(HOME / "bin/spark-class"), *arguments]
            self._processes.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))

    def _state(self) -> dict[str, Any] | None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._page}/json/", timeout=5) as answer:
                state: dict[str, Any] = json.load(answer)
                return state
        except (urllib.error.URLError, OSError, json.JSONDecodeError):  # its page answers before it has its state
            return None

    def _alive(self) -> int:
        state = self._state()
        return 0 if state is None else sum(worker["state"] == "ALIVE" for worker in state["workers"])

    def _await(self, condition: Callable[[], bool]) -> None:
        pause = threading.Event()
        for _ in range(_PATIENCE):
            if condition():
                return
            if any(process.poll() is not None for process in self._processes):
                break
            pause.wait(0.1)
        logs = "\n".join(path.read_text()[-1000:] for path in self._directory.glob("*.log"))
        raise AssertionError(f"the cluster did not start:\n{logs}")
