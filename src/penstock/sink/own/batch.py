"""`OwnBatch`, the batch that `OwnSink.write_rows` receives, and the keys of batches and marks."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.core.model import Batch, Publication

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnBatch:
    """One decided batch for one sink, identical at every repetition.

    `key`: the name of the batch, unique among all batches of this sink; letters, digits and `._-=` only. `rows`: Arrow batches in
    their frozen order, to be read once and to the end. `count`: the number of rows. `batch`: Spark's identity of the batch, with
    the offsets of its sources.
    """

    key: str
    rows: "Iterator[pa.RecordBatch]"
    count: int
    schema: "pa.Schema"
    batch: Batch


def mark_key(pipeline: str, sink: str) -> str:
    """Return the key of a sink's mark. It is unambiguous: no pipeline or sink has a `=` in its name."""
    return f"{pipeline}={sink}"


def batch_key(publication: Publication) -> str:
    """Return the key of a batch. As texts, keys sort in the order of the batches."""
    return f"{mark_key(publication.pipeline, publication.sink)}={publication.position:012d}"
