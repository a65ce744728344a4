"""Prometheus, and promtool, which tries its rules: those on PATH, or those of the Debian package, which is not installed."""

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

from tests.servers.server import HOME, START_S, NotInstalledError, free_port, started, stop
from tests.servers.system import fetch_package

PACKAGE = "prometheus"
PROGRAMS = ("prometheus", "promtool")
BINARIES = HOME / "bin"
_LOOK_S = 0.02


def install() -> None:
    """Take them out of the package, unless they are there: 2 seconds, where an installation brings 20 packages and a service."""
    if all(map(_found, PROGRAMS)):
        return
    BINARIES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BINARIES) as directory:
        (package,) = fetch_package("Prometheus", PACKAGE, Path(directory))
        subprocess.run(["dpkg-deb", "--extract", package, directory], check=True)
        for name in PROGRAMS:
            (Path(directory) / "usr/bin" / name).replace(BINARIES / name)


def _found(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ['PATH']}{os.pathsep}{BINARIES}")


def program(name: str) -> str:
    """The path of one of PROGRAMS. Raises NotInstalledError."""
    found = _found(name)
    if found is None:
        raise NotInstalledError(f"{name} is not there: run `make servers`")
    return found


@contextmanager
def scraping(directory: Path, *, settings: Mapping[str, Any]) -> Iterator[str]:
    """The URL of a server with these settings, as prometheus.yml has them; JSON is YAML, too."""
    (directory / "prometheus.yml").write_text(json.dumps(settings))
    port = free_port()
    options = {"config.file": directory / "prometheus.yml", "storage.tsdb.path": directory / "data"}
    command = [program("prometheus"), *(f"--{name}={value}" for name, value in options.items())]
    process = started([*command, f"--web.listen-address=127.0.0.1:{port}"], port=port, log=directory / "prometheus.log")
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + START_S
        while not _is_ready(url):  # it answers 503 before
            assert time.monotonic() < deadline, (directory / "prometheus.log").read_text()
            time.sleep(_LOOK_S)
        yield url
    finally:
        stop(process)


def _is_ready(url: str) -> bool:
    try:
        with urlopen(f"{url}/-/ready", timeout=START_S):
            return True
    except HTTPError:
        return False


def asked(url: str) -> Any:
    """What the API of the server answers."""
    with urlopen(url, timeout=START_S) as answer:
        found = json.load(answer)
    assert found["status"] == "success", found
    return found["data"]


def first_alerts(url: str) -> list[dict[str, Any]]:
    """Those that fire, as soon as one does."""
    deadline = time.monotonic() + START_S
    while not (firing := [each for each in asked(f"{url}/api/v1/alerts")["alerts"] if each["state"] == "firing"]):
        assert time.monotonic() < deadline, asked(f"{url}/api/v1/targets")
        time.sleep(_LOOK_S)
    return firing
