"""The sources of a Spark Connect DataFrame, from the message that the client sends and from the server's plan."""

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame

from penstock.source.guarantee import OpenedSource
from penstock.transform.plan import PlanNode, plan_of

_READ = "spark.connect.Read"


def sources_of_client(frame: DataFrame) -> tuple[OpenedSource, ...]:
    """Return what the client opened, with options; if the server knows more sources (behind views), those of its plan."""
    client_frame: Any = frame
    opened = tuple(_reads(client_frame._plan.to_proto(client_frame.sparkSession.client).root))
    planned = [node for node in plan_of(frame).walk() if node.is_stream_source]
    return opened if len(opened) == len(planned) else tuple(map(_by_text, planned))


def _reads(message: Any) -> Iterator[OpenedSource]:
    if message.DESCRIPTOR.full_name == _READ and message.is_streaming:
        yield _opened(message)
        return
    for _, value in message.ListFields():
        if hasattr(value, "DESCRIPTOR"):
            yield from _reads(value)
        elif not hasattr(value, "keys") and not isinstance(value, str | bytes | int | float):
            for one in value:
                if hasattr(one, "DESCRIPTOR"):
                    yield from _reads(one)


def _opened(read: Any) -> OpenedSource:
    if read.HasField("named_table"):
        return OpenedSource(format="table", options=_lower(read.named_table.options))
    source = read.data_source
    options = _lower(read.data_source.options)
    paths = (*source.paths, *(value for key, value in options.items() if key == "path"))
    return OpenedSource(format=source.format or "parquet", options=options, paths=paths)


def _lower(options: Any) -> dict[str, str]:
    return {str(key).lower(): str(value) for key, value in options.items()}


def _by_text(node: PlanNode) -> OpenedSource:
    """Parse `StreamingRelationV2 <provider>, <format>, …`; a relation over files does not say which format."""
    parts = node.detail.split(", ")
    return OpenedSource(format=parts[1] if node.name == "StreamingRelationV2" and len(parts) > 1 else node.name, options=None)
