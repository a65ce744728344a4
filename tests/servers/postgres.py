"""A cluster of PostgreSQL in a directory of its own, asked for passwords, with fsync, and one role that is no superuser."""

import hashlib
import hmac
import os
import shutil
import signal
import subprocess
import time
from base64 import b64encode
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.servers.server import START_S, NotInstalledError, free_port, started, stop
from tests.servers.system import install_packages, rights_of_a_user

PACKAGE = "postgresql"
ADMIN, ADMIN_PASSWORD = "postgres", "secret-of-the-administrator"
ROLE, PASSWORD = "penstock", "s3cret/of?the-role"
QUOTED_PASSWORD = "s3cret%2Fof%3Fthe-role"
_LOOK_S = 0.02
_KEPT = 24
"""Databases of earlier tests: each takes 8 MB, and the cluster may be in memory."""
_RECOVERY = "recovery_init_sync_method=syncfs"
"""After a kill, one call for all files: there are some hundred to a database, and a database to most tests."""


def install() -> None:
    """Install Debian's package, unless some PostgreSQL is there."""
    if _binaries() is None:
        install_packages("PostgreSQL", [PACKAGE])


def _binaries() -> Path | None:
    """The newest installation: what is on PATH, or where Debian puts it."""
    on_path = shutil.which("initdb")
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    return Path(os.path.realpath(on_path)).parent if on_path else found[-1].parent if found else None


def _verifier_of(password: str) -> str:
    """What SCRAM-SHA-256 (RFC 5803) has for `password`, with one iteration."""
    salt = os.urandom(16)
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, 1)
    stored = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    kept = (b64encode(part).decode() for part in (salt, stored, hmac.digest(salted, b"Server Key", "sha256")))
    return "SCRAM-SHA-256$1:{}${}:{}".format(*kept)


class PostgresServer:
    """One cluster, which can be killed and started again. Each database belongs to a role that is no superuser."""

    kind = "postgres"

    def __init__(self, binaries: Path, directory: Path, *, asks_for: str = "scram-sha-256") -> None:
        self._asks_for = asks_for
        self._binaries, self._directory, self._data = binaries, directory, directory / "data"
        self._rights = rights_of_a_user(directory)
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._databases: deque[str] = deque()

    def create(self) -> None:
        """Make the cluster; the server refuses root."""
        secret = self._directory / "password"
        secret.write_text(ADMIN_PASSWORD)
        secret.chmod(0o644)
        options = ["-A", self._asks_for, "--pwfile", str(secret), "-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions"]
        command = [str(self._binaries / "initdb"), "-D", str(self._data), "-U", ADMIN, *options]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=self._directory, **self._rights)
        self.start()
        with self.admin() as connection:
            connection.execute(f"CREATE ROLE {ROLE} LOGIN PASSWORD '{self._kept(PASSWORD)}' NOSUPERUSER")
            connection.execute(f"ALTER ROLE {ADMIN} PASSWORD '{self._kept(ADMIN_PASSWORD)}'")

    def _kept(self, password: str) -> str:
        """As the server keeps it. Whoever connects repeats a hash 4096 times unless told otherwise: as long as the rest takes."""
        return _verifier_of(password) if self._asks_for == "scram-sha-256" else password

    def start(self) -> None:
        """Also after a kill: it recovers by itself."""
        place = ("listen_addresses=127.0.0.1", f"unix_socket_directories={self._directory}")
        settings = (*place, "max_connections=60", "max_wal_size=128MB", "dynamic_shared_memory_type=mmap", _RECOVERY)
        command = [str(self._binaries / "postgres"), "-D", str(self._data), "-p", str(self.port)]
        command += [part for setting in settings for part in ("-c", setting)]
        log = self._directory / "postgres.log"
        self._process = started(command, port=self.port, log=log, **self._rights)
        deadline = time.monotonic() + START_S
        ask = [str(self._binaries / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        while subprocess.run(ask, check=False).returncode:
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(_LOOK_S)

    def kill(self) -> None:
        """SIGKILL of the server and all of its processes."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Without waiting for clients."""
        self._end(signal.SIGINT)

    def _end(self, by: signal.Signals) -> None:
        if self._process is not None:
            stop(self._process, by=by)
        while left := self._sessions():
            for process in left:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            time.sleep(_LOOK_S)

    def _sessions(self) -> list[int]:
        """Processes of the server that outlive it for a moment, and keep the next one from starting: each is a session leader."""
        return [int(link.parent.name) for link in Path("/proc").glob("[0-9]*/cwd") if _leads_to(link, self._data)]

    def database(self, name: str, *, template: str = "template1") -> str:
        """The URL of an empty database that belongs to the role: with what is in `template`, to which nobody is connected."""
        with self.admin() as connection:
            copied = "STRATEGY file_copy" if connection.info.server_version >= 150_000 else ""  # by the log takes a third more
            connection.execute(f'CREATE DATABASE "{name}" OWNER {ROLE} TEMPLATE "{template}" {copied}')
            self._databases.append(name)
            if len(self._databases) > _KEPT:
                self._drop_oldest(connection)
        return self.url(name)

    def _drop_oldest(self, connection: Any) -> None:
        from psycopg.errors import ObjectInUse

        name = self._databases.popleft()
        try:
            connection.execute(f'DROP DATABASE IF EXISTS "{name}"')
        except ObjectInUse:
            self._databases.append(name)

    def url(self, database: str, *, port: int | None = None, password: str = QUOTED_PASSWORD) -> str:
        return f"postgresql://{ROLE}:{password}@127.0.0.1:{port or self.port}/{database}"

    @contextmanager
    def standby(self) -> "Iterator[PostgresServer]":
        """Another server that follows this one, and that nothing can be written to."""
        directory = self._directory / "standby"
        directory.mkdir()
        follower = PostgresServer(self._binaries, directory)
        command = [str(self._binaries / "pg_basebackup"), "-D", str(directory / "data"), "-R", "-X", "stream", "-c", "fast"]
        command += ["--no-sync", "-h", "127.0.0.1", "-p", str(self.port), "-U", ADMIN]
        environment = {**os.environ, "PGPASSWORD": ADMIN_PASSWORD}
        subprocess.run(command, env=environment, check=True, cwd=directory, **self._rights)
        try:
            follower.start()
            yield follower
        finally:
            follower.stop()
            shutil.rmtree(directory)

    def admin(self, database: str = "postgres") -> Any:
        """A superuser's connection, for what only tests do."""
        import psycopg

        url = f"postgresql://{ADMIN}:{ADMIN_PASSWORD}@127.0.0.1:{self.port}/{database}"
        return psycopg.connect(url, autocommit=True)


def _leads_to(link: Path, directory: Path) -> bool:
    try:
        return os.readlink(link) == str(directory)
    except OSError:
        return False


@contextmanager
def running(directory: Path, *, asks_for: str = "scram-sha-256") -> Iterator[PostgresServer]:
    """A server that keeps its data below `directory`. `asks_for`: how passwords are told."""
    binaries = _binaries()
    if binaries is None:
        raise NotInstalledError("PostgreSQL is not there: install its server, or run `make servers`")
    server = PostgresServer(binaries, directory, asks_for=asks_for)
    try:
        server.create()
        yield server
    finally:
        server.stop()
