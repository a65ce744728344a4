"""A Cassandra of one node in a directory of its own, asked for passwords, and one user who is no superuser."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from tests.servers.server import HOME, START_S, NotInstalledError, free_port, started, stop

VERSION = "5.0.9"
FOLDER = HOME / "cassandra"
READY = FOLDER / f"{VERSION}.ready"
MAIN = "org.apache.cassandra.service.CassandraDaemon"
ADMIN, ADMIN_PASSWORD = "cassandra", "cassandra"
ROLE, PASSWORD, QUOTED_PASSWORD = "penstock", "s3cret/of?the-role", "s3cret%2Fof%3Fthe-role"
POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion><groupId>test</groupId><artifactId>cassandra</artifactId><version>1</version>
  <dependencies><dependency>
    <groupId>org.apache.cassandra</groupId><artifactId>cassandra-all</artifactId><version>{VERSION}</version>
  </dependency></dependencies>
</project>
"""
SETTINGS = """cluster_name: penstock
num_tokens: 1
partitioner: org.apache.cassandra.dht.Murmur3Partitioner
seed_provider:
  - class_name: org.apache.cassandra.locator.SimpleSeedProvider
    parameters: [{{seeds: "127.0.0.1:{storage}"}}]
listen_address: 127.0.0.1
rpc_address: 127.0.0.1
storage_port: {storage}
ssl_storage_port: {secured}
native_transport_port: {port}
endpoint_snitch: SimpleSnitch
authenticator: PasswordAuthenticator
authorizer: CassandraAuthorizer
role_manager: CassandraRoleManager
permissions_validity: 0ms
commitlog_sync: batch
data_file_directories: [{directory}/data]
commitlog_directory: {directory}/commitlog
hints_directory: {directory}/hints
saved_caches_directory: {directory}/saved_caches
cdc_raw_directory: {directory}/cdc
auto_snapshot: false
materialized_views_enabled: true
memtable_heap_space: 64MiB
memtable_offheap_space: 64MiB
file_cache_enabled: false
"""
LOGGING = """<configuration><appender name="file" class="ch.qos.logback.core.FileAppender"><file>{directory}/system.log</file>
<encoder><pattern>%-5level %d{{HH:mm:ss.SSS}} %logger{{20}} %msg%n</pattern></encoder></appender>
<root level="WARN"><appender-ref ref="file"/></root></configuration>
"""
_OPENED = (
    "java.io java.lang java.lang.module java.lang.reflect java.math java.net java.nio java.nio.charset java.nio.file.spi "
    "java.util java.util.concurrent java.util.concurrent.atomic jdk.internal.loader jdk.internal.math jdk.internal.module "
    "jdk.internal.ref jdk.internal.reflect jdk.internal.util.jar jdk.internal.vm sun.nio.ch"
)
_EXPORTED = (
    *(f"java.base/{package}" for package in ("jdk.internal.misc", "jdk.internal.ref", "jdk.internal.perf", "sun.nio.ch")),
    *(f"java.rmi/sun.rmi.{package}" for package in ("registry", "server", "transport.tcp")),
    *("java.management.rmi/com.sun.jmx.remote.internal.rmi", "java.sql/java.sql"),
    *("jdk.unsupported/sun.misc", "jdk.attach/sun.tools.attach"),
)
_FURTHER = ("java.management/com.sun.jmx.mbeanserver", "jdk.management/com.sun.management.internal")
_JVM = (
    *("-Xms512m", "-Xmx512m", "-XX:+UseSerialGC", "-Xss256k", "-XX:TieredStopAtLevel=1", "-Djdk.attach.allowAttachSelf=true"),
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED.split()),
    *(f"--add-opens={package}=ALL-UNNAMED" for package in _FURTHER),
    *(f"--add-exports={package}=ALL-UNNAMED" for package in _EXPORTED),
)
_HURRY = {
    "approximate_time_precision_ms": "50",  # not 2, which is three quarters of what an idle node computes
    "ring_delay_ms": "1",
    "skip_wait_for_gossip_to_settle": "0",
    "superuser_setup_delay_ms": "0",
    "auth_bcrypt_gensalt_log2_rounds": "4",
    "foreground": "yes",
}


def install() -> None:
    """Fetch its jars, unless they are there."""
    maven = shutil.which("mvn")
    if maven is None or shutil.which("java") is None:
        raise NotInstalledError("Cassandra is fetched by Maven and runs on Java, and mvn or java is not on PATH")
    if not READY.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        (FOLDER / "pom.xml").write_text(POM)
        copy = ["-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={FOLDER / 'jars'}"]
        subprocess.run([maven, "-f", str(FOLDER / "pom.xml"), *copy], check=True)
        READY.touch()


class CassandraServer:
    """One node, which can be killed and started again. Each keyspace is one in which a user who is no superuser may do all."""

    kind = "cassandra"

    def __init__(self, java: str, directory: Path) -> None:
        self._java, self._directory = java, directory
        self.port, self._storage, self._secured = free_port(), free_port(), free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._sessions, self._session_of = ExitStack(), {}

    def create(self) -> None:
        """Write its settings, start it, and make the user."""
        (self._directory / "conf").mkdir()
        (self._directory / "tmp").mkdir()
        places = {"directory": self._directory, "port": self.port, "storage": self._storage, "secured": self._secured}
        (self._directory / "conf/cassandra.yaml").write_text(SETTINGS.format(**places))
        (self._directory / "conf/logback.xml").write_text(LOGGING.format(**places))
        self.start()
        self._make_role()

    def _make_role(self) -> None:
        """By the superuser, whom the node itself makes some time after it accepts connections."""
        from cassandra.cluster import NoHostAvailable

        not_yet = retry_if_exception_type(NoHostAvailable)
        for attempt in Retrying(retry=not_yet, stop=stop_after_delay(START_S), wait=wait_fixed(0.2), reraise=True):
            with attempt, self.admin() as session:
                session.execute(f"CREATE ROLE {ROLE} WITH PASSWORD = '{PASSWORD}' AND LOGIN = true")

    def start(self) -> None:
        """Also after a kill: it reads its commit log again."""
        directory, tmp = self._directory, self._directory / "tmp"
        properties = {f"cassandra.{name}": value for name, value in _HURRY.items()} | {
            "cassandra.config": f"file://{directory}/conf/cassandra.yaml",
            "cassandra.storagedir": str(directory),
            "logback.configurationFile": f"{directory}/conf/logback.xml",
            "java.io.tmpdir": str(tmp),
            "jna.tmpdir": str(tmp),
        }
        given = [f"-D{name}={value}" for name, value in properties.items()]
        command = [self._java, *_JVM, *given, "-cp", f"{directory}/conf:{FOLDER}/jars/*", MAIN]
        self._process = started(command, port=self.port, log=directory / "cassandra.log")

    def kill(self) -> None:
        """SIGKILL; what it acknowledged is in its commit log."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """As it should be."""
        self._end(signal.SIGTERM)

    def freeze(self) -> None:
        """It answers nobody until `thaw`."""
        self._close_sessions()
        self._send(signal.SIGSTOP)

    def thaw(self) -> None:
        self._send(signal.SIGCONT)

    def _send(self, what: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(what)

    def _end(self, by: signal.Signals) -> None:
        self._close_sessions()
        if self._process is not None:
            stop(self._process, by=by)

    def database(self, name: str) -> str:
        """The URL of an empty keyspace in which the user may do all."""
        with self.admin() as session:
            replicated = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
            session.execute(f'CREATE KEYSPACE "{name}" WITH replication = {replicated}')
            session.execute(f'GRANT ALL ON KEYSPACE "{name}" TO {ROLE}')
        return self.url(name)

    def url(self, keyspace: str, *, port: int | None = None, user: str = ROLE, password: str = QUOTED_PASSWORD) -> str:
        return f"cassandra://{user}:{password}@127.0.0.1:{port or self.port}/{keyspace}"

    def session(self, keyspace: str) -> Any:
        """The user's session there, the same until the node ends or stands still: making one takes the time of many requests."""
        if keyspace not in self._session_of:
            self._session_of[keyspace] = self._sessions.enter_context(connected(self.port, ROLE, PASSWORD, keyspace))
        return self._session_of[keyspace]

    def _close_sessions(self) -> None:
        self._session_of.clear()
        self._sessions.close()

    @contextmanager
    def admin(self, keyspace: str | None = None) -> Iterator[Any]:
        """A superuser's session, for what only tests do."""
        with connected(self.port, ADMIN, ADMIN_PASSWORD, keyspace) as session:
            yield session


@contextmanager
def connected(port: int, user: str, password: str, keyspace: str | None = None) -> Iterator[Any]:
    """A session of the driver's own making, without the product."""
    from cassandra.auth import PlainTextAuthProvider
    from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
    from cassandra.policies import RoundRobinPolicy

    profile = ExecutionProfile(load_balancing_policy=RoundRobinPolicy(), request_timeout=60)
    cluster = Cluster(
        ["127.0.0.1"],
        port=port,
        auth_provider=PlainTextAuthProvider(user, password),
        protocol_version=5,
        connect_timeout=START_S,
        control_connection_timeout=START_S,  # a node reads its schema late where it was just started, beside other work
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        schema_metadata_enabled=False,  # else it reads every table of all tests, when it is made and whenever one is added
        schema_event_refresh_window=-1,  # never
        token_metadata_enabled=False,
    )
    try:
        yield cluster.connect(keyspace)
    finally:
        cluster.shutdown()


@contextmanager
def running(directory: Path) -> Iterator[CassandraServer]:
    """A node that keeps its data below `directory`."""
    java = shutil.which("java", path=os.environ.get("PATH"))
    if java is None or not READY.exists():
        raise NotInstalledError("Cassandra is not there: run `make servers`")
    server = CassandraServer(java, directory)
    try:
        server.create()
        yield server
    finally:
        server.kill()  # nobody needs its data any more
