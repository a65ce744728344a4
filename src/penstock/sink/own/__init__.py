"""`OwnSink`, the base class of user-written sinks: seven short methods, the rest is Penstock's (docs/howto/own_sink.md)."""

from penstock.sink.own.author import OwnBatch
from penstock.sink.own.json_lines import from_json_lines, require_json, to_json_lines
from penstock.sink.own.sink import OwnSink

__all__ = ["OwnBatch", "OwnSink", "from_json_lines", "require_json", "to_json_lines"]
