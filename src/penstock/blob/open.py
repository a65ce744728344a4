"""Opening of a store from a URL and its options."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from penstock.blob.store import BlobStore
from penstock.blob.url import BlobUrl, parse
from penstock.errors import DependencyMissing
from penstock.support.secret import remember_options

_STORES = {
    "az": ("penstock.blob.azure", "azure_store", "azure"),
    "gs": ("penstock.blob.gcs", "gcs_store", "gcs"),
    "hdfs": ("penstock.blob.hdfs", "hdfs_store", "hdfs"),
    "s3": ("penstock.blob.s3", "s3_store", "s3"),
}
"""Of each kind of store: its module, which alone imports the client library, the factory in it, and Penstock's extra."""


def open_store(url: str, *, options: Mapping[str, Any] | None = None) -> BlobStore:
    """Return the store at `url`. Nothing is connected yet. Raises Usage, DependencyMissing."""
    place = parse(url)
    remember_options(options or {})
    module, factory, extra = _STORES[place.kind]
    try:
        opener: Callable[[BlobUrl, Mapping[str, str]], BlobStore] = getattr(import_module(module), factory)
    except ImportError as cause:
        raise DependencyMissing(
            f"{place} needs the package {cause.name}, which is not installed.",
            remedy=f"Install it on the driver and on every executor: pip install 'penstock[{extra}]'.",
        ) from cause
    return opener(place, {name: str(value) for name, value in (options or {}).items()})
