"""A MariaDB in a directory of its own, asked for passwords, and one user who is no superuser."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.servers.server import NotInstalledError, free_port, started, stop
from tests.servers.system import install_packages, rights_of_a_user

PACKAGES = ("mariadb-server-core", "mariadb-client-core")
ADMIN, ADMIN_PASSWORD = "root", "secret-of-the-administrator"
ROLE, PASSWORD = "penstock", "s3cret/of?the-role"
QUOTED_PASSWORD = "s3cret%2Fof%3Fthe-role"


def install() -> None:
    """Install Debian's packages, unless some MariaDB is there."""
    if _binaries() is None:
        install_packages("MariaDB", PACKAGES)


def _binaries() -> tuple[str, str] | None:
    """The server, and what makes its directory."""
    path = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"))
    server, make = shutil.which("mariadbd", path=path), shutil.which("mariadb-install-db", path=path)
    return (server, make) if server and make else None


class MysqlServer:
    """One MariaDB, which can be killed and started again. Each database belongs to a user who is no superuser."""

    kind = "mysql"

    def __init__(self, binaries: tuple[str, str], directory: Path) -> None:
        self._server, self._make = binaries
        self._directory, self._data = directory, directory / "data"
        self._rights = rights_of_a_user(directory)
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def create(self) -> None:
        """Make the directory; the server refuses root."""
        options = ["--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"]
        command = [self._make, "--no-defaults", f"--datadir={self._data}", *options]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=self._directory, **self._rights)
        self.start()
        with self.admin(password="") as connection:
            cursor = connection.cursor()
            cursor.execute("CREATE USER penstock@'%%' IDENTIFIED BY %s", (PASSWORD,))
            cursor.execute("SET PASSWORD = PASSWORD(%s)", (ADMIN_PASSWORD,))

    def start(self, *settings: str) -> None:
        """Also after a kill: it recovers by itself. `settings`: more options of the server."""
        command = [self._server, "--no-defaults", f"--datadir={self._data}", f"--port={self.port}", "--bind-address=127.0.0.1"]
        command += [f"--socket={self._directory}/s", f"--pid-file={self._directory}/pid", f"--tmpdir={self._directory}"]
        command += ["--skip-name-resolve", "--innodb-buffer-pool-size=64M", "--innodb-log-file-size=16M", *settings]
        self._process = started(command, port=self.port, log=self._directory / "mariadb.log", **self._rights)

    def kill(self) -> None:
        """SIGKILL; it is one process."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """As it should be."""
        self._end(signal.SIGTERM)

    def _end(self, by: signal.Signals) -> None:
        if self._process is not None:
            stop(self._process, by=by)

    def database(self, name: str) -> str:
        """The URL of an empty database that belongs to the user."""
        with self.admin() as connection:
            connection.cursor().execute(f"CREATE DATABASE `{name}` CHARACTER SET utf8mb4")
            connection.cursor().execute(f"GRANT ALL ON `{name}`.* TO penstock@'%'")
        return self.url(name)

    def url(self, database: str, *, port: int | None = None, user: str = ROLE, password: str = QUOTED_PASSWORD) -> str:
        return f"mysql://{user}:{password}@127.0.0.1:{port or self.port}/{database}?ssl_mode=disabled"

    def admin(self, database: str | None = None, *, password: str = ADMIN_PASSWORD) -> Any:
        """A superuser's connection, for what only tests do."""
        import pymysql

        return pymysql.connect(
            host="127.0.0.1", port=self.port, user=ADMIN, password=password, database=database, autocommit=True, ssl_disabled=True
        )


@contextmanager
def running(directory: Path) -> Iterator[MysqlServer]:
    """A server that keeps its data below `directory`."""
    binaries = _binaries()
    if binaries is None:
        raise NotInstalledError("MariaDB is not there: install its server, or run `make servers`")
    server = MysqlServer(binaries, directory)
    try:
        server.create()
        yield server
    finally:
        server.kill()  # nobody needs its data any more
