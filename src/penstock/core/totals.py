"""How many rows there are, and their content digest: what decisions are compared with what sinks hold by."""

from dataclasses import dataclass
from enum import Enum

DIGEST_MODULUS = 1 << 64


class RowDigest(str, Enum):
    """How the 64-bit hash of a row is computed. Fixed when a ledger begins: digests of two kinds cannot be compared.

    `XXHASH64` is Spark's function over all columns, which skips NULLs. `XXHASH64_NULLS` also covers which values are NULL.
    """

    XXHASH64 = "xxhash64"
    XXHASH64_NULLS = "xxhash64+nulls"


NEWEST_ROW_DIGEST = RowDigest.XXHASH64_NULLS
"""The kind of digest of a ledger that begins now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Rows, files, bytes and content digest of a set of rows. Addition is exact, because the digest does not depend on order."""

    rows: int = 0
    files: int = 0
    size_bytes: int = 0
    digest: int = 0

    def __add__(self, other: "Totals") -> "Totals":
        return Totals(
            rows=self.rows + other.rows,
            files=self.files + other.files,
            size_bytes=self.size_bytes + other.size_bytes,
            digest=(self.digest + other.digest) % DIGEST_MODULUS,
        )

    def __sub__(self, other: "Totals") -> "Totals":
        return Totals(
            rows=self.rows - other.rows,
            files=self.files - other.files,
            size_bytes=self.size_bytes - other.size_bytes,
            digest=(self.digest - other.digest) % DIGEST_MODULUS,
        )
