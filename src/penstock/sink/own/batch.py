"""A decided batch as the author of a sink gets it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.core.model import Batch, Publication

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnBatch:
    """One batch for one sink, identical at every repetition.

    `key`: its name, which no other batch of this sink ever has; letters, digits and `._-=` only. `rows`: Arrow batches in their
    frozen order, to be read once and to the end. `count`: how many rows they have. `batch`: Spark's own identity of it, with the
    offsets of its sources.
    """

    key: str
    rows: "Iterator[pa.RecordBatch]"
    count: int
    schema: "pa.Schema"
    batch: Batch


def mark_key(pipeline: str, sink: str) -> str:
    """Names the mark of a sink: no name of a pipeline or a sink has a `=`."""
    return f"{pipeline}={sink}"


def batch_key(publication: Publication) -> str:
    """Names a batch of a sink; keys grow with the batches as texts do."""
    return f"{mark_key(publication.pipeline, publication.sink)}={publication.position:012d}"
