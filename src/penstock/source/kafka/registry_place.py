"""A schema registry of the pipeline file as its client takes it."""

from penstock.registry.place import RegistryPlace
from penstock.secret import shown_text
from penstock.spec.registry import Registry


def place_of(registry: Registry) -> RegistryPlace:
    """The registry as its client takes it."""
    return RegistryPlace(
        urls=tuple(url.strip().rstrip("/") for url in registry.url.split(",")),
        name=shown_text(registry.url),
        user=registry.user,
        password=registry.password,
        token=registry.token,
        ca_file=registry.ca_file,
        certificate_file=registry.certificate_file,
        key_file=registry.key_file,
        timeout_s=registry.timeout / 1000,
    )
