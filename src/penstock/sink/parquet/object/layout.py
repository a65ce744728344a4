"""Keys of what the Parquet sink stores beside a table: below `_penstock/`, which readers of tables skip.

Markers are named so that the newest comes first in a listing: one request finds it, however many there are.
"""

from penstock.core.model import PipelineName, Position, SinkName
from penstock.sink.parquet.hive import escape

HIDDEN = "_penstock"
OWNER = f"{HIDDEN}/.owner.json"
"""The key of the object that names the owner of the account."""

_LAST = 10**12 - 1


def own_folder(pipeline: PipelineName, sink: SinkName) -> str:
    """Return the folder for the own objects of one sink of one pipeline."""
    return f"{HIDDEN}/{escape(pipeline)}/{escape(sink)}/"


def mark_key(folder: str, position: Position) -> str:
    """Return the key of the marker of the publication at `position`."""
    return f"{folder}marks/{_LAST - position:012d}.json"


def tag_of(name: str) -> str:
    """Return the tag noted on the object `name`, which tells our object from any other. No two files have the same."""
    return name.rpartition("/")[2]
