"""A schema registry of the pipeline file as its client takes it, and the schemas that the file names there."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.errors import DependencyMissing
from penstock.registry.place import RegistryPlace
from penstock.spec.registry import ByRegistry, Registry
from penstock.support.secret import shown_text

if TYPE_CHECKING:
    from penstock.registry.decoding import CodedColumn


def place_of(registry: Registry) -> RegistryPlace:
    """Return the registry's settings as its client takes them."""
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


def subjects_of(settings: ByRegistry, topic: str | None) -> Mapping[str, tuple[str, int | None]]:
    """Return by which subject each column is read or written, and which of its versions; None is the newest.

    `topic` is None only where every column names its subject (`require_subjects`).
    """
    return {column: (coded.subject or f"{topic}-{column}", coded.version) for column, coded in settings.columns.items()}


def coded_columns(settings: ByRegistry, topic: str | None, *, who: str) -> "tuple[CodedColumn, ...]":
    """Return the columns with their schemas, for which the registry is asked now.

    `who` begins the messages: "Source 'orders' decodes". Raises Usage (no such subject), Retryable (the registry does not
    answer), Failed, DependencyMissing.
    """
    try:
        from penstock.registry.client import Registry as Client  # noqa: PLC0415 - an extra
        from penstock.registry.decoding import CodedColumn  # noqa: PLC0415
    except ImportError as cause:
        raise DependencyMissing(
            f"{who} by a schema registry with the package {cause.name}, which is not installed.",
            remedy="Install it on the driver and on every executor: pip install 'penstock[registry]'.",
        ) from cause
    client = Client(place_of(settings.registry))
    coded = []
    for column, (subject, version) in subjects_of(settings, topic).items():
        found = client.of_subject(subject, version)
        coded.append(CodedColumn(column=column, format=settings.columns[column].format, subject=subject, schema=found))
    return tuple(coded)
