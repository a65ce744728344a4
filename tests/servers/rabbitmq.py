"""A RabbitMQ, the broker of AMQP, with one scheduler and little memory, whose queues are in a directory of its own."""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers.certificates import certify
from tests.servers.server import HOME, NotInstalledError, free_port, started, stop
from tests.servers.system import fetch_package, install_packages

USER, PASSWORD = "penstock", "s3cret-of-the-queues"
SETTINGS = """\
listeners.tcp.1 = 127.0.0.1:{port}
listeners.ssl.1 = 127.0.0.1:{tls_port}
ssl_options.cacertfile = {directory}/ca.pem
ssl_options.certfile = {directory}/server.pem
ssl_options.keyfile = {directory}/server.pem
default_user = {user}
default_pass = {password}
vm_memory_high_watermark.absolute = 256MB
disk_free_limit.absolute = 1MB
log.file = false
log.console = true
log.console.level = warning
"""
FETCHED = HOME / "rabbitmq"
ERLANG = (
    *("base", "crypto", "eldap", "inets", "mnesia", "os-mon", "parsetools", "public-key", "runtime-tools", "ssl"),
    *("syntax-tools", "tools", "xmerl"),
)
"""What Debian's rabbitmq-server needs of it."""
_SPARING = "+S 1:1 +SDcpu 1:1 +SDio 1 +A 1 +sbwt none +sbwtdcpu none +sbwtdio none -kernel inet_dist_use_interface {127,0,0,1}"
"""One scheduler of each kind, none of which waits busily."""


def install() -> None:
    """Install Debian's Erlang (60 MB), and take RabbitMQ out of its package: an installation would bring a service."""
    if shutil.which("erl") is None or shutil.which("epmd") is None:
        install_packages("RabbitMQ", [f"erlang-{part}" for part in ERLANG])
    if _server() is None:
        FETCHED.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=FETCHED) as directory:
            (package,) = fetch_package("RabbitMQ", "rabbitmq-server", Path(directory))
            subprocess.run(["dpkg-deb", "--extract", package, FETCHED], check=True)


def _server() -> str | None:
    """The script of RabbitMQ itself: Debian's wrapper of it runs the system's own broker."""
    found = [
        each for root in (FETCHED, Path("/")) for each in root.glob("usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server")
    ]
    return str(found[0]) if found and shutil.which("erl") and shutil.which("epmd") else None


class RabbitMQ:
    """One broker, which can be killed and started again. `tls_port` speaks TLS. Both ask for the password."""

    def __init__(self, server: str, directory: Path) -> None:
        self._server, self._directory = server, directory
        self.port, self.tls_port, self._names_port, self._node_port = (free_port() for _ in range(4))
        self.authority = directory / "ca.pem"
        self._names: subprocess.Popen[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def create(self) -> None:
        certify(self.authority, self._directory / "server.pem")
        settings = SETTINGS.format(
            directory=self._directory, port=self.port, tls_port=self.tls_port, user=USER, password=PASSWORD
        )
        (self._directory / "rabbitmq.conf").write_text(settings)
        (self._directory / "plugins").write_text("[].\n")
        names = ["epmd", "-port", str(self._names_port), "-address", "127.0.0.1"]
        self._names = started(names, port=self._names_port, log=self._directory / "names.log")
        self.start()

    def start(self) -> None:
        """Also after a kill: it has what it had confirmed."""
        directory = str(self._directory)
        environment = {
            "HOME": directory,
            "ERL_EPMD_PORT": str(self._names_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"penstock-{self.port}@localhost",
            "RABBITMQ_DIST_PORT": str(self._node_port),
            "RABBITMQ_BASE": directory,
            "RABBITMQ_MNESIA_BASE": f"{directory}/queues",
            "RABBITMQ_LOG_BASE": f"{directory}/log",
            "RABBITMQ_CONFIG_FILE": f"{directory}/rabbitmq.conf",
            "RABBITMQ_CONF_ENV_FILE": f"{directory}/none",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{directory}/plugins",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": _SPARING,
            "RUNNING_UNDER_SYSTEMD": "true",  # then the script becomes the broker, and hands on signals
        }
        log = self._directory / "rabbitmq.log"
        self._process = started([self._server], port=self.port, log=log, env=environment, start_new_session=True)

    def kill(self) -> None:
        """Kill the broker's process, and the script that started it."""
        if self._process is not None:
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)
            stop(self._process, by=signal.SIGKILL)

    def end(self) -> None:
        self.kill()
        if self._names is not None:
            stop(self._names)


@contextmanager
def running(directory: Path) -> Iterator[RabbitMQ]:
    """A broker that keeps its queues below `directory`."""
    server = _server()
    if server is None:
        raise NotInstalledError("RabbitMQ is not there: run `make servers`")
    broker = RabbitMQ(server, directory)
    try:
        broker.create()
        yield broker
    finally:
        broker.end()
