"""What keeps a pipeline from starting and can be seen without Spark, whose start takes most of a minute on a small machine."""

import os
import re
from contextlib import ExitStack, closing
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import Protocol, runtime_checkable

from penstock.commit.backfill import require_joinable
from penstock.commit.publication import require_sinks_of
from penstock.commit.rewind import require_rewound
from penstock.core.guarantee import too_weak
from penstock.core.model import Entry, Guarantee, SinkName
from penstock.errors import DependencyMissing, Refused, Usage
from penstock.protocols import Ledger
from penstock.run.assembly import DeliveryPlan, checkpoint_of, ledger_of, sinks_of
from penstock.run.continuation import require_continuation
from penstock.run.lost_state import require_state
from penstock.run.operations import newest_decision
from penstock.run.preflight.change import Preflight
from penstock.run.preflight.compare import SeenBySpark, compare
from penstock.sink.concurrent import map_concurrently
from penstock.source.guarantee import INFERENCE_CONF, likely_format, needs_schema, no_schema, source_claims, unknown_format
from penstock.source.input_path import require_any, require_paths
from penstock.source.kafka import reachable
from penstock.source.kafka.options import is_kafka
from penstock.spec.pipeline import PipelineSettings, without_ledger
from penstock.spec.sink import Console, Memory
from penstock.support.extras import install_command

_SPARK_IS_SET_UP = ("SPARK_REMOTE", "PYSPARK_GATEWAY_PORT", "SPARK_HOME", "SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR")
"""Environment variables by which Spark can be elsewhere, or have another default file system than this machine's."""

_BRINGS_FORMATS = re.compile(r"spark\.jars|extraClassPath|--(jars|packages|driver-class-path|py-files)")
"""What of settings and arguments of spark-submit gives Spark data sources of others."""

_DEFAULT_FILES = ("spark.hadoop.fs.defaultFS", "spark.hadoop.fs.default.name")


@runtime_checkable
class LogsIn(Protocol):
    """A sink on a server that says at once whether it lets this user in."""

    def require_login(self) -> None:
        """Raise what `prepare` would raise: Failed if the server refuses the login, Retryable if none answers."""
        ...


@runtime_checkable
class WritesFile(Protocol):
    """A sink into a file that says at once whether the file takes a write."""

    def require_writable(self, *, home: str) -> None:
        """Raise Failed if it does not. `home` may be missing, since a start creates it."""
        ...


def require_parts(settings: PipelineSettings, plan: DeliveryPlan) -> None:
    """Raise Usage without sources, for a misspelled format, for files without a schema, or an input directory that is not there.

    Raises DependencyMissing without PySpark or for a sink. Directories are looked at where Spark will see the same: not at a
    server of Spark Connect, or with a default file system.
    """
    require_any(settings.sources)
    _require_formats(settings)
    _require_schemas(settings)
    require_pyspark()
    for sink in sinks_of(plan):
        sink.close()
    if not _is_spark_set_up() and not any(key in settings.spark.conf for key in _DEFAULT_FILES):
        require_paths(settings.sources)


def _is_spark_set_up() -> bool:
    return any(name in os.environ for name in _SPARK_IS_SET_UP)


def _require_formats(settings: PipelineSettings) -> None:
    """Raise Usage for a format that is spelled nearly like one that is known, where nothing brings Spark any others.

    A package, a jar, a class path or a module `pyspark_…`, in which Spark looks for data sources, can have one of that name.
    """
    given = [*settings.spark.conf, os.environ.get("PYSPARK_SUBMIT_ARGS", "")]
    if _is_spark_set_up() or settings.spark.packages or any(_BRINGS_FORMATS.search(text) for text in given):
        return
    for name, source in settings.sources.items():
        if source.format is not None and likely_format(source.format) is not None and not _brings_python_sources():
            raise unknown_format(name, source.format)


def _require_schemas(settings: PipelineSettings) -> None:
    """Raise Usage for files without a schema, unless Spark may have been told to infer it."""
    given = [*settings.spark.conf, os.environ.get("PYSPARK_SUBMIT_ARGS", "")]
    if _is_spark_set_up() or any(INFERENCE_CONF in text for text in given):
        return
    for name, source in settings.sources.items():
        if source.schema_ddl is None and source.format is not None and needs_schema(source.format):
            raise no_schema(name, source.format)


def _brings_python_sources() -> bool:
    return any(module.name.startswith("pyspark_") for module in iter_modules())


def require_guarantee(settings: PipelineSettings, plan: DeliveryPlan) -> None:
    """Raise GuaranteeTooWeak for a source, trigger or sink that gives less than is demanded, as a start would after Spark's."""
    from penstock.run.required_guarantees import require_demanded_of_parts  # with PySpark

    require_demanded_of_parts(settings, plan)


def require_pyspark() -> None:
    """Raise DependencyMissing without PySpark. Called before a module is imported that needs it."""
    if find_spec("pyspark") is None:
        raise DependencyMissing(
            "A pipeline runs on PySpark, which is not installed.", remedy=f"Install it: {install_command('spark')}"
        )


def require_fillable(settings: PipelineSettings, sink: SinkName) -> None:
    """Raise Usage for a sink that the file does not have, Refused for one that keeps no rows: neither can be backfilled."""
    found = settings.sinks.get(sink)
    if found is None:
        raise Usage(f"The pipeline has no sink {sink!r}.", remedy=f"It has {', '.join(settings.sinks)}.")
    if isinstance(found, Console | Memory):
        raise Refused(f"Sink {sink!r} is of type {found.type}, which keeps no rows.", remedy="Name another sink.")


def require_continued(settings: PipelineSettings, plan: DeliveryPlan) -> None:
    """Raise what a start would raise for a checkpoint that does not continue the ledger, and for a ledger that cannot be read.

    Also for a sink that left the pipeline file before its rows were published, or whose backfill has not ended, and for any other
    change since the last run that loses or repeats rows.

    A driver that still runs moves both between two reads: then the start itself decides, which fences it first.
    """
    if not _is_continued(settings):
        return
    with closing(ledger_of(plan)) as ledger:
        tail = ledger.tail()
        if tail is None:
            return
        try:
            require_rewound(tail.summary, ledger)
            require_continuation(tail.summary, checkpoint_of(plan))
            require_state(plan, ledger, tail.summary)
            _require_sinks(plan, ledger, tail)
            compare(settings, plan, ledger, summary=tail.summary).require_startable()
        except Refused:
            if ledger.tail() == tail:
                raise


def require_compatible(settings: PipelineSettings, plan: DeliveryPlan, *, seen: SeenBySpark) -> None:
    """Raise PipelineChanged for a change since the last run that loses or repeats rows, by the plan of the query, too."""
    preflight_of(settings, plan, seen=seen).require_startable()


def preflight_of(settings: PipelineSettings, plan: DeliveryPlan, *, seen: SeenBySpark) -> Preflight:
    """Return how the file differs from the last run. Empty for a pipeline whose start does not go on exactly."""
    with closing(ledger_of(plan)) as ledger:
        tail = ledger.tail()
        if tail is None or not _is_continued(settings):
            return Preflight()
        return compare(settings, plan, ledger, summary=tail.summary, seen=seen)


def _is_continued(settings: PipelineSettings) -> bool:
    """Return whether a start goes on exactly with what the ledger and the checkpoint hold, and else is refused."""
    replayable = not too_weak(source_claims(settings.sources, {}), Guarantee.EXACTLY_ONCE)
    return settings.guarantee is Guarantee.EXACTLY_ONCE and without_ledger(settings) is None and replayable


def require_logins(plan: DeliveryPlan) -> None:
    """Raise what a start would raise for databases that refuse a login, do not answer, or are a file that takes no write.

    Waits for the slowest of them. Files are looked at unless a server of Spark Connect writes them.
    """
    with ExitStack() as opened:
        sinks = [opened.enter_context(closing(sink)) for sink in sinks_of(plan)]
        for sink in sinks if "SPARK_REMOTE" not in os.environ else ():
            if isinstance(sink, WritesFile):
                sink.require_writable(home=plan.settings.home)
        map_concurrently(lambda sink: sink.require_login(), [sink for sink in sinks if isinstance(sink, LogsIn)])


def require_brokers(settings: PipelineSettings) -> None:
    """Raise Retryable for a source of Kafka none of whose brokers accepts a connection, and Usage for its options.

    Without the client of Kafka nothing is tried: a start says first that it is missing.
    """
    for name, source in settings.sources.items():
        if is_kafka(source) and find_spec("confluent_kafka") is not None:
            reachable.require_brokers(name, source)


def _require_sinks(plan: DeliveryPlan, ledger: Ledger, tail: Entry) -> None:
    newest = newest_decision(ledger, tail)
    if newest is None:
        return
    sinks = sinks_of(plan)
    for sink in sinks:
        sink.close()
    require_sinks_of(newest, sinks, tail.summary)
    require_joinable(tail.summary, [sink.name for sink in sinks])
