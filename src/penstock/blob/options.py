"""Options of an account's store, as the pipeline file gives them."""

from collections.abc import Mapping

from penstock.bloburl import BlobUrl
from penstock.errors import Usage


def require_known(options: Mapping[str, str], known: tuple[str, ...], *, place: BlobUrl) -> None:
    """Raise Usage for an option that the store does not have."""
    unknown = next((name for name in options if name not in known), None)
    if unknown is not None:
        raise Usage(f"An account on {place.kind}:// has no option {unknown!r}.", remedy=f"It has {', '.join(known)}.")
