"""A real registry behind TLS, with certificates of an authority that only the pipeline file names."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.servers.certificates import certify
from tests.servers.fixtures import server, unique
from tests.servers.proxy import before
from tests.unit.registry_values import ORDER

from penstock.errors import Failed
from penstock.registry.client import Registry
from penstock.registry.wire import RegistryPlace


class Guarded:
    """What signed the server's certificate, another authority, and a client's certificate with its key."""

    def __init__(self, directory: Path) -> None:
        self.ca, self.another_ca = str(directory / "ca.pem"), str(directory / "another.pem")
        self.clients_ca, self.client = str(directory / "clients.pem"), str(directory / "client.pem")
        self.server = str(directory / "server.pem")
        certify(Path(self.ca), Path(self.server))
        certify(Path(self.another_ca), directory / "nobody.pem")
        certify(Path(self.clients_ca), Path(self.client))

    @contextmanager
    def running(self, *, asks_for_certificates: bool = False) -> Iterator[str]:
        """Its URL."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.server)
        if asks_for_certificates:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(self.clients_ca)
        with before(server("registry").url, tls=context) as proxy:
            yield f"{proxy.endpoint}/apis/ccompat/v7"


@pytest.fixture
def guarded(tmp_path: Path) -> Guarded:
    return Guarded(tmp_path)


@pytest.fixture
def subject() -> str:
    name = unique("orders-value")
    server("registry").register(name, ORDER)
    return name


def asked(url: str, subject: str, **trust: str) -> str:
    place = RegistryPlace(urls=(url,), name="https://registry", **trust)
    return Registry(place).of_subject(subject, None).kind


@pytest.mark.parametrize("bundle", [None, "another_ca"])
def test_the_authority_that_the_file_names_is_trusted(guarded, subject, monkeypatch, bundle):
    """Also where the machine names another one for all programs."""
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    if bundle is not None:
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", getattr(guarded, bundle))
    with guarded.running() as url:
        assert asked(url, subject, ca_file=guarded.ca) == "AVRO"


def test_no_other_authority_is_trusted(guarded, subject):
    with guarded.running() as url:
        for trust in ({}, {"ca_file": guarded.another_ca}):
            with pytest.raises(Failed, match=r"is not trusted: .*certificate verify failed.* Name its authority by `ca_file`"):
                asked(url, subject, **trust)


@pytest.mark.parametrize("trust", [{"ca_file": "/nowhere/ca.pem"}, {"certificate_file": "/nowhere/client.pem"}])
def test_a_file_that_is_not_on_this_machine_is_named(guarded, subject, trust):
    with guarded.running() as url, pytest.raises(Failed, match=r"cannot be asked: .*/nowhere/c.*\.pem.* on every machine"):
        asked(url, subject, **{"ca_file": guarded.ca, **trust})


def test_a_registry_that_asks_for_a_certificate_is_shown_it(guarded, subject):
    with guarded.running(asks_for_certificates=True) as url:
        assert asked(url, subject, ca_file=guarded.ca, certificate_file=guarded.client) == "AVRO"
        with pytest.raises(Failed, match=r"is not trusted: .*the client certificate that it asks for by `certificate_file`"):
            asked(url, subject, ca_file=guarded.ca)
