"""What servers need of the system: packages of Debian, and a user that is not root."""

import os
import pwd
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

from tests.servers.server import NotInstalledError

_one_apt = Lock()


def install_packages(name: str, packages: Sequence[str]) -> None:
    """Install what `name` consists of. Raises NotInstalledError where that is not for us to do."""
    _apt(name, ["install", "-y", "-qq", "--no-install-recommends", *packages])


def fetch_package(name: str, package: str, directory: Path) -> Sequence[Path]:
    """Download the package that `name` is in, without what it depends on. Raises as `install_packages`."""
    _apt(name, ["download", "-qq", "-o", "APT::Sandbox::User=root", package], cwd=directory)
    return list(directory.glob("*.deb"))


def _apt(name: str, act: Sequence[str], *, cwd: Path | None = None) -> None:
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0:
        raise NotInstalledError(f"{name} is not there: install its server, or run `make servers` as root on Debian")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with _one_apt:  # two that run at once find its database locked
        _update(apt)
        subprocess.run([apt, *act], env=environment, check=True, stdout=subprocess.DEVNULL, cwd=cwd)


@cache
def _update(apt: str) -> None:
    subprocess.run([apt, "update", "-qq"], check=True, stdout=subprocess.DEVNULL)


def rights_of_a_user(directory: Path) -> Mapping[str, Any]:
    """Nothing for a plain user; for root, those of another, to whom the directory is given. As `subprocess.Popen` takes them."""
    if os.geteuid() != 0:
        return {}
    user = pwd.getpwnam("nobody")
    directory.chmod(0o755)
    os.chown(directory, user.pw_uid, user.pw_gid)
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
