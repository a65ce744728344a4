"""promtool, which checks and tries rules of Prometheus: that on PATH, or that of the Debian package, which is not installed."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.servers.server import HOME, NotInstalledError
from tests.servers.system import fetch_package

PACKAGE = "prometheus"
BINARY = HOME / "bin" / "promtool"


def install() -> None:
    """Take it out of the package, unless it is there: 2 seconds, where an installation would bring 20 packages and a service."""
    if shutil.which("promtool") is None and not BINARY.exists():
        BINARY.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=BINARY.parent) as directory:
            (package,) = fetch_package("promtool", PACKAGE, Path(directory))
            subprocess.run(["dpkg-deb", "--extract", package, directory], check=True)
            (Path(directory) / "usr/bin/promtool").replace(BINARY)


def promtool() -> str:
    """Its path. Raises NotInstalledError."""
    found = shutil.which("promtool", path=f"{os.environ['PATH']}{os.pathsep}{BINARY.parent}")
    if found is None:
        raise NotInstalledError("promtool is not there: run `make servers`")
    return found
