"""A Mosquitto, the broker of MQTT, which writes its sessions to a directory of its own after every change."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers.certificates import certify
from tests.servers.server import NotInstalledError, free_port, started, stop
from tests.servers.system import install_packages

USER, PASSWORD = "penstock", "s3cret-of-the-broker"
SETTINGS = """\
user root
per_listener_settings true
persistence true
persistence_location {directory}/
autosave_on_changes true
autosave_interval 1
max_queued_messages 0
listener {port} 127.0.0.1
allow_anonymous true
listener {weak_port} 127.0.0.1
allow_anonymous true
max_qos 0
listener {tls_port} 127.0.0.1
allow_anonymous false
password_file {directory}/passwords
certfile {directory}/server.pem
keyfile {directory}/server.pem
"""


def install() -> None:
    """Install Debian's package (400 kB), unless it is there."""
    if _binaries() is None:
        install_packages("Mosquitto", ("mosquitto",))


def _binaries() -> tuple[str, str] | None:
    path = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"))
    server, passwords = shutil.which("mosquitto", path=path), shutil.which("mosquitto_passwd", path=path)
    return (server, passwords) if server and passwords else None


class Mosquitto:
    """One broker, which can be killed and started again. `tls_port` asks for the password; `weak_port` has QoS 0 only."""

    def __init__(self, server: str, directory: Path) -> None:
        self._server, self._directory = server, directory
        self.port, self.tls_port, self.weak_port = free_port(), free_port(), free_port()
        self.authority = directory / "ca.pem"
        self._process: subprocess.Popen[bytes] | None = None

    def create(self, passwords: str) -> None:
        certify(self.authority, self._directory / "server.pem")
        file = self._directory / "passwords"
        subprocess.run([passwords, "-b", "-c", str(file), USER, PASSWORD], check=True, stdout=subprocess.DEVNULL)
        settings = SETTINGS.format(directory=self._directory, port=self.port, tls_port=self.tls_port, weak_port=self.weak_port)
        (self._directory / "mosquitto.conf").write_text(settings)
        self.start()

    def start(self) -> None:
        """Also after a kill: it has the sessions that it had written."""
        command = [self._server, "-c", str(self._directory / "mosquitto.conf")]
        self._process = started(command, port=self.port, log=self._directory / "mosquitto.log")

    def kill(self) -> None:
        if self._process is not None:
            stop(self._process, by=signal.SIGKILL)


@contextmanager
def running(directory: Path) -> Iterator[Mosquitto]:
    """A broker that keeps its sessions below `directory`."""
    binaries = _binaries()
    if binaries is None:
        raise NotInstalledError("Mosquitto is not there: install it, or run `make servers`")
    broker = Mosquitto(binaries[0], directory)
    try:
        broker.create(binaries[1])
        yield broker
    finally:
        broker.kill()
