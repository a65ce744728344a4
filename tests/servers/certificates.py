"""Certificates for servers and clients of tests."""

import datetime
import ipaddress
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAYS = 30


def certify(ca_file: Path, keystore: Path) -> None:
    """A key and its certificate in one file, for this machine, and the authority of its own that signed it in the other."""
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
