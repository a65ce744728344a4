"""Support for Spark Connect, where this process is a client and another one, at the server, delivers the batches.

The client opens the delivery first, so that everything that can be refused is refused before Spark plans a batch. Then it leaves
the pipeline to the server, which opens it once more with its first batch. Both must see the same ledger.
"""

import logging
import os
import re
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import dropwhile, takewhile
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from penstock.commit.coordinator import FENCES_NOBODY
from penstock.core.model import Nonce, SinkName
from penstock.errors import DependencyMissing, Failed, Fenced, LedgerMismatch, Retryable, Usage
from penstock.observe.history import history
from penstock.observe.progress import BatchProgress, RunSummary, SinkProgress
from penstock.protocols import Ledger
from penstock.source.guarantee import OpenedSource
from penstock.support.extras import install_command
from penstock.support.secret import scheme_only, scrub
from penstock.transform.plan import PlanNode, plan_of

if TYPE_CHECKING:
    from pyspark.sql.streaming.readwriter import DataStreamWriter


REMOTE = "SPARK_REMOTE"
"""Spark's environment variable that names the server: `sc://host:port`."""
_ADDRESS = re.compile(r"sc://(?P<host>[^\s/@:;?#]+|\[[0-9a-fA-F:.]+\])(:(?P<port>\d{1,5}))?(?=[/;]|$)")
_PORT = 15002
_ANSWER_S = 20.0
_log = logging.getLogger(__name__)


def is_of_client(thing: object) -> bool:
    """Return whether a session, writer or query is a Connect client's. Asks no server; needs none of the client's packages."""
    return type(thing).__module__.startswith("pyspark.sql.connect")


def frame_of_writer(writer: "DataStreamWriter") -> DataFrame:
    """Return the rows that `writer` is to write."""
    if not is_of_client(writer):
        return writer._df
    from pyspark.sql.connect.dataframe import DataFrame as ClientDataFrame

    return ClientDataFrame(writer._write_stream._child, writer._session)  # type: ignore[attr-defined]


def require_no_limit(batches: int | None) -> None:
    """Raise Usage if there is a limit: the process that counts batches is not the one that could end the query."""
    if batches is not None:
        raise Usage(
            f"A run on Spark Connect cannot be told to stop after {batches} batches.",
            remedy="Let it end with `trigger: {available_now: true}` (`--available-now`), or take a classic session.",
        )


def require_left(ledger: Ledger, left: Nonce | None) -> None:
    """Raise LedgerMismatch or Fenced unless the newest entry is what the client left. Called at the server.

    Acts that fence nobody do not count.
    """
    if left is None:
        return
    newest_first = dropwhile(lambda entry: isinstance(entry.body, FENCES_NOBODY) and entry.nonce != left, ledger.newest_first())
    newest = next(newest_first, None)
    if newest is not None and newest.nonce == left:
        return
    if any(entry.nonce == left for entry in newest_first):
        raise Fenced("A newer run opened the pipeline meanwhile.", remedy="Let the newer run work, or stop it first.")
    raise LedgerMismatch(
        f"The server of Spark Connect sees another ledger at {ledger.location} than the client that started the query.",
        remedy="Put `home:` and all places on storage where both see the same, not into a directory of one machine.",
    )


def summary_of(ledger: Ledger, left: Nonce, *, pipeline: str, sinks: Iterable[str]) -> RunSummary:
    """Return the summary of what was decided after the entry that the client left."""
    entries = list(ledger.newest_first())
    since = takewhile(lambda pair: pair[1].nonce != left, zip(history(entries), entries, strict=True))
    generation = entries[0].generation if entries else 0
    summary = RunSummary(pipeline=pipeline, generation=generation, sinks={SinkName(name): SinkProgress() for name in sinks})
    for row, _ in reversed(list(since)):
        if row.batch_id is not None:
            shares = {name: SinkProgress(rows=of.rows, files=of.files, bytes=of.size_bytes) for name, of in row.sinks.items()}
            summary = summary.plus(BatchProgress(batch_id=row.batch_id, rows_out=row.rows_out, sinks=shares, path="server"))
    return summary


def connect_session(conf: Mapping[str, str], packages: Sequence[str]) -> SparkSession:
    """Return a session at the server that SPARK_REMOTE names, with those settings of `conf` that a session may still set.

    Raises DependencyMissing, Retryable (the server does not answer), Failed.
    """
    url = os.environ[REMOTE]
    require_listening(url)
    try:
        spark = SparkSession.builder.getOrCreate()
        fixed = [key for key in conf if not _is_set(spark, key, conf[key])]
    except ImportError as missing:
        reason = str(missing).splitlines()[0].rstrip(".")
        raise DependencyMissing(
            f"Spark Connect needs packages that are not installed here: {reason}.",
            remedy=f"Install them: {install_command('connect')}",
        ) from missing
    except PySparkException as error:
        raise Failed(
            f"Spark Connect gave no session at {_shown(url)}: {scrub(str(error).splitlines()[0])}",
            remedy="The server's log says why.",
        ) from error
    fixed += ["packages"] if packages else []
    if fixed:
        _log.warning("spark: %s: only the server of Spark Connect can set that, when it starts.", ", ".join(fixed))
    return spark


def _is_set(spark: SparkSession, key: str, value: str) -> bool:
    if not spark.conf.isModifiable(key):
        return False
    spark.conf.set(key, value)
    return True


def require_listening(url: str) -> None:
    """Raise Retryable if no server answers within seconds. Spark's own client would try for ten minutes."""
    address = _address(url)
    if address is None:  # Spark's client explains it better
        return
    try:
        with socket.create_connection(address, timeout=_ANSWER_S):
            return
    except OSError as error:
        raise Retryable(
            f"No server of Spark Connect answers at {_shown(url)}: {error.strerror or error}.",
            remedy=f"Start it, or correct {REMOTE}.",
        ) from error


def _shown(url: str) -> str:
    """Return the address without the token that may follow it."""
    address = _address(url)
    return scheme_only(url) if address is None else "sc://{}:{}".format(*address)


def _address(url: str) -> tuple[str, int] | None:
    found = _ADDRESS.match(url)
    return None if found is None else (found["host"].strip("[]"), int(found["port"] or _PORT))


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
