"""Keys of what the storage writer keeps beside a table: below `_penstock/`, which readers of tables skip.

Marks are named so that the newest comes first in a listing: one request finds it, however many there are.
"""

from penstock.core.model import PipelineName, Position, SinkName
from penstock.sink.parquet.hive import escape

HIDDEN = "_penstock"
OWNER = f"{HIDDEN}/.owner.json"
"""Says whose the account is."""

_LAST = 10**12 - 1


def own_folder(pipeline: PipelineName, sink: SinkName) -> str:
    """Where one sink of one pipeline keeps its own."""
    return f"{HIDDEN}/{escape(pipeline)}/{escape(sink)}/"


def mark_key(folder: str, position: Position) -> str:
    """The mark of the publication at `position`."""
    return f"{folder}marks/{_LAST - position:012d}.json"


def tag_of(name: str) -> str:
    """What is noted on the object `name`: it tells our object from any other. No two files have the same."""
    return name.rpartition("/")[2]
