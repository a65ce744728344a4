"""Opening of a store from a URL and its options."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from penstock.blob.store import BlobStore
from penstock.blob.url import BlobUrl, parse
from penstock.errors import DependencyMissing
from penstock.support.secret import remember_options

_STORES = {
    "az": ("penstock.blob.azure", "azure_store"),
    "gs": ("penstock.blob.gcs", "gcs_store"),
    "hdfs": ("penstock.blob.hdfs", "hdfs_store"),
    "s3": ("penstock.blob.s3", "s3_store"),
}
"""Module and factory function of each kind of store. Only that module imports the client library."""
_EXTRAS = {"s3": "s3", "az": "azure", "gs": "gcs", "hdfs": "hdfs"}


def open_store(url: str, *, options: Mapping[str, Any] | None = None) -> BlobStore:
    """Return the store at `url`. Nothing is connected yet. Raises Usage, DependencyMissing."""
    place = parse(url)
    remember_options(options or {})
    return _opener(place)(place, {name: str(value) for name, value in (options or {}).items()})


def _opener(place: BlobUrl) -> Callable[[BlobUrl, Mapping[str, str]], BlobStore]:
    module, function = _STORES[place.kind]
    try:
        opener: Callable[[BlobUrl, Mapping[str, str]], BlobStore] = getattr(import_module(module), function)
    except ImportError as cause:
        raise DependencyMissing(
            f"{place} needs the package {cause.name}, which is not installed.",
            remedy=f"Install it on the driver and on every executor: pip install 'penstock[{_EXTRAS[place.kind]}]'.",
        ) from cause
    return opener
