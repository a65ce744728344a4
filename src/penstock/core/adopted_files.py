"""The files that an account began with: what Spark's file sink delivered there before the pipeline took the directory over."""

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.core.model import BatchId

SPARK_LOG = "_spark_metadata"
"""The directory in which Spark's file sink names the files of its batches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptedFiles:
    """Every file that the log of Spark's file sink named up to batch `batch_id`, with its size in bytes, by its name.

    Names are relative to the account's root, with slashes. They never change: a removal on purpose stands in the ledger.
    """

    batch_id: BatchId
    sizes: Mapping[str, int]
