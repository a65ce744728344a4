"""A broker that is reached by TLS, knows its users by name and password, and lets each do what it was given."""

import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.servers.certificates import certify
from tests.servers.kafka import READY, KafkaServer
from tests.servers.server import NotInstalledError

MECHANISM = "SCRAM-SHA-512"


class SecuredServer(KafkaServer):
    """Guarded at `bootstrap_proxied`; whoever asks at `bootstrap` may do anything. `ca`: what signed its certificate."""

    def __init__(self, java: str, directory: Path) -> None:
        super().__init__(java, directory)
        self.proxied = self.behind
        self.ca, self.another_ca = directory / "ca.pem", directory / "another-ca.pem"
        keystore = directory / "broker.pem"
        certify(self.ca, keystore)
        certify(self.another_ca, directory / "nobody.pem")
        self._guard = {
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,PROXIED:SASL_SSL,CONTROLLER:PLAINTEXT",
            "listener.name.proxied.sasl.enabled.mechanisms": MECHANISM,
            f"listener.name.proxied.{MECHANISM.lower()}.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
            "listener.name.proxied.ssl.keystore.type": "PEM",
            "listener.name.proxied.ssl.keystore.location": str(keystore),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        }

    def create(self, **settings: str) -> None:
        super().create(**self._guard, **settings)

    def user(self, name: str) -> str:
        """A user with no rights at all; the password."""
        from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

        password = f"word-of-{name}-{secrets.token_hex(8)}"
        kind = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        wanted = UserScramCredentialUpsertion(name, kind, password.encode())
        [future] = self.admin().alter_user_scram_credentials([wanted]).values()
        future.result(60)
        return password

    def allow(self, *given: Any) -> None:
        """Those rights, as the client library says them."""
        for future in self.admin().create_acls(list(given)).values():
            future.result(60)

    def deny(self, given: Any) -> None:
        """No longer that right."""
        from confluent_kafka.admin import AclBindingFilter

        parts = ("restype", "name", "resource_pattern_type", "principal", "host", "operation", "permission_type")
        [future] = self.admin().delete_acls([AclBindingFilter(*(getattr(given, part) for part in parts))]).values()
        assert len(future.result(60)) == 1


@contextmanager
def running(directory: Path) -> Iterator[SecuredServer]:
    """One that keeps its data below `directory`."""
    java = shutil.which("java")
    if java is None or not READY.exists():
        raise NotInstalledError("Kafka is not there: run `make servers`")
    server = SecuredServer(java, directory)
    try:
        server.create()
        yield server
    finally:
        server.stop()
