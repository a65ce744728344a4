"""The list of the files that an account began with, as JSON."""

from penstock.core.adopted_files import AdoptedFiles
from penstock.core.codec.document import decode, encode_document
from penstock.core.codec.fields import INTEGER, Record

FORMAT = "penstock.adopted_files"
_VERSION = 1
_ADOPTED = Record(AdoptedFiles, {"batch_id": INTEGER, "sizes": INTEGER.by_name})


def encode_adopted_files(adopted: AdoptedFiles) -> bytes:
    """Return the bytes of the list."""
    return encode_document(FORMAT, _VERSION, _ADOPTED.fields_of(adopted))


def decode_adopted_files(data: bytes, *, where: str) -> AdoptedFiles:
    """Return the list in `data`. Raises LedgerMismatch, FormatTooNew."""
    return decode(data, kind=FORMAT, where=where, readers={_VERSION: _ADOPTED.read})
