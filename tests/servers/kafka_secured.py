"""A broker that is reached by TLS, knows its users by name and password, and lets each do what it was given."""

import datetime
import ipaddress
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.servers.kafka import READY, KafkaServer
from tests.servers.server import NotInstalledError

MECHANISM = "SCRAM-SHA-512"
_DAYS = 30


class SecuredServer(KafkaServer):
    """Guarded at `bootstrap_proxied`; whoever asks at `bootstrap` may do anything. `ca`: what signed its certificate."""

    def __init__(self, java: str, directory: Path) -> None:
        super().__init__(java, directory)
        self.proxied = self.behind
        self.ca, self.another_ca = directory / "ca.pem", directory / "another-ca.pem"
        keystore = directory / "broker.pem"
        _certify(self.ca, keystore)
        _certify(self.another_ca, directory / "nobody.pem")
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


def _certify(ca_file: Path, keystore: Path) -> None:
    """A certificate of an authority of its own, for this machine."""
    authority, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ours = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, ca_file.stem)])
    ca = _signed(ours, ours, authority.public_key(), authority, x509.BasicConstraints(ca=True, path_length=None))
    names = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "broker")])
    certificate = _signed(subject, ours, key.public_key(), authority, names)
    ca_file.write_bytes(_pem(ca))
    plain = serialization.NoEncryption()
    secret = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    keystore.write_bytes(secret + _pem(certificate) + _pem(ca))


def _signed(subject: Any, issuer: Any, key: Any, authority: Any, extension: Any) -> x509.Certificate:
    now = datetime.datetime.now(datetime.timezone.utc)
    made = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    made = made.serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(days=1))
    made = made.not_valid_after(now + datetime.timedelta(days=_DAYS)).add_extension(extension, critical=False)
    return made.sign(authority, hashes.SHA256())


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
