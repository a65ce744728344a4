"""Names that Spark knows sources by, so that their place in the query's plan does not matter to a checkpoint."""

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamReader

from penstock.core.model import SourceName
from penstock.errors import DependencyMissing, Usage
from penstock.spark.session_settings import SOURCE_EVOLUTION, applied

_NEEDED = (4, 3)


@contextmanager
def naming(spark: SparkSession, *, named: bool) -> Iterator[None]:
    """Have `spark` open sources, or start a query, with names or without them; afterwards restore the user's setting.

    Raises DependencyMissing for names before Spark 4.3.
    """
    if named:
        _require_version(spark.version)
    if _is_named(spark) is named:
        yield
    else:
        with applied(spark, {SOURCE_EVOLUTION: str(named).lower()}):
            yield


def stream_reader(spark: SparkSession, name: str) -> DataStreamReader:
    """Return a reader for the source `name`, which Spark knows by it if the session names sources."""
    return spark.readStream.name(name) if _is_named(spark) else spark.readStream


def require_nameable(order: Sequence[SourceName], names: Collection[str]) -> None:
    """Raise Usage if the query, whose sources are in `order`, reads one of `names` in two places, or a stream without a name."""
    foreign = next((name for name in order if name.partition("#")[0] not in names), None)
    if foreign is not None:
        raise Usage(
            "The transform reads a stream that is not one of `sources`, and `named_sources` wants a name for each.",
            remedy="Add it to `sources`; or take `named_sources` out.",
        )
    twice = next((name for place, name in enumerate(order) if "#" in name or name in order[:place]), None)
    if twice is not None:
        name = twice.partition("#")[0]
        raise Usage(
            f"The query reads source {name!r} in more than one place, expected one: Spark takes the name of a source once.",
            remedy="Add a source that reads the same under another name, for the second place; or take `named_sources` out.",
        )


def _is_named(spark: SparkSession) -> bool:
    return str(spark.conf.get(SOURCE_EVOLUTION, "false")).lower() == "true"


def _require_version(version: str) -> None:
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None or (int(found[1]), int(found[2])) < _NEEDED:
        raise DependencyMissing(
            f"`named_sources: true` needs Spark 4.3, found {version}.", remedy="Take a newer Spark, or take the key out."
        )
