"""What each entry point can see of a streaming query before staging: a pipeline file, `Delivery.start`, `foreachBatch`.

Spark shows a writer's options and a running query's trigger to its own classes only: on classic sessions they are read from
these, on Spark Connect from the message that the client sends. What cannot be read, as in a Spark with other classes, is None.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from penstock.core.guarantee import Claim
from penstock.core.model import QueryId, SourceName
from penstock.errors import Usage
from penstock.run.connect import frame_of_writer, is_of_client, sources_of_client
from penstock.run.given_writer import sink_in, sink_in_message
from penstock.run.path_columns import FileRelation
from penstock.source.guarantee import OpenedSource, opened_claims, relevant_confs, short_format, source_claims
from penstock.spec.pipeline import PipelineSettings, Trigger
from penstock.transform.guarantee import ASYNC_OPTION
from penstock.transform.plan import PlanNode, java_items, plan_in, plan_of

if TYPE_CHECKING:
    from pyspark.sql.streaming.readwriter import DataStreamWriter

T = TypeVar("T")
_PATTERNS = frozenset("*?[]{}\\")
_ASYNC_CLASS = "AsyncProgressTracking"
_QUERY_ID = "sql.streaming.queryId"
_TRIGGERS: Mapping[str, Trigger] = {
    "ProcessingTimeTrigger": Trigger(processing_time=0),
    "AvailableNowTrigger": Trigger(available_now=True),
    "OneTimeTrigger": Trigger(once=True),
    "ContinuousTrigger": Trigger.model_validate({"continuous": "1s"}),
    "RealTimeTrigger": Trigger.model_validate({"real_time": "1s"}),
}
"""By the name of Spark's class; the interval does not matter here."""
_CLIENT_TRIGGERS: Mapping[str, str] = {
    "available_now": "AvailableNowTrigger",
    "once": "OneTimeTrigger",
    "continuous_checkpoint_interval": "ContinuousTrigger",
    "real_time_batch_duration": "RealTimeTrigger",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFacts:
    """The sources of a query as one entry point sees them; `claims` is None where it cannot see them.

    `paths` are what its file sources read, by the source's name; `unseen` is what cannot be seen of single sources.
    """

    claims: tuple[Claim, ...] | None = None
    paths: Mapping[str, str] = field(default_factory=dict)
    unseen: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryFacts:
    """A streaming query as one entry point sees it; None is what it cannot see. `rows` have the columns that are delivered."""

    rows: DataFrame
    plan: PlanNode | None = None
    sources: SourceFacts = field(default_factory=SourceFacts)
    output_mode: str | None = None
    trigger: Trigger | None = None
    options: Mapping[str, str] | None = None
    sink: str | None = None
    """What the writer itself says of where its rows go, None also where that cannot be seen."""

    @property
    def unseen(self) -> tuple[str, ...]:
        """What this entry point cannot check, worded for people."""
        seen: Mapping[str, object | None] = {
            "sources and their options": self.sources.claims,
            "operators": self.plan,
            "output mode": self.output_mode,
            "trigger": self.trigger,
            "options of the query": self.options,
        }
        return (*(name for name, value in seen.items() if value is None), *self.sources.unseen)


def facts_of_pipeline(settings: PipelineSettings, frame: DataFrame, spark: SparkSession) -> QueryFacts:
    """Return the facts of a pipeline file or its settings. Raises Usage where Spark's plan cannot be read."""
    return QueryFacts(
        rows=frame,
        plan=plan_of(frame),
        sources=SourceFacts(claims=source_claims(settings.sources, relevant_confs(spark)), paths=settings.paths),
        output_mode=settings.output_mode,
        trigger=settings.trigger,
        options={},
    )


def facts_of_writer(writer: "DataStreamWriter", names: Sequence[SourceName]) -> QueryFacts:
    """Return the facts of a query that `Delivery.start` is about to start."""
    frame = frame_of_writer(writer)
    mode, trigger, options = _of_client(writer) if is_of_client(writer) else _of_classic(writer)
    return QueryFacts(
        rows=frame,
        plan=_seen(lambda: plan_of(frame)),
        sources=_of_sources(_seen(lambda: _opened_sources(frame)), names, frame.sparkSession),
        output_mode=mode,
        trigger=trigger,
        options=options,
        sink=_seen(lambda: _sink_of(writer)),
    )


def facts_of_batch(rows: DataFrame, names: Sequence[SourceName]) -> QueryFacts:
    """Return the facts of a query that somebody else started, seen from its first batch by `foreachBatch(delivery)`."""
    execution = _seen(lambda: _execution(rows))
    if execution is None:
        return QueryFacts(rows=rows)
    opened = _seen(lambda: _leaves(execution.analyzedPlan()))
    is_async = _seen(lambda: str(_ASYNC_CLASS in execution.getClass().getSimpleName()).lower())
    return QueryFacts(
        rows=rows,
        plan=_seen(lambda: plan_in(rows.sparkSession, execution.analyzedPlan())),
        sources=_of_sources(opened, names, rows.sparkSession),
        output_mode=_seen(lambda: str(execution.outputMode().toString()).lower()),
        trigger=_seen(lambda: _trigger(execution.trigger())),
        options=None if is_async is None else {ASYNC_OPTION: is_async},
    )


def _seen(read: Callable[[], T]) -> T | None:
    """Return what `read` returns, None where this Spark does not show it: its own classes change with every version."""
    try:
        return read()
    except (Py4JError, PySparkException, Usage, AttributeError, LookupError, TypeError):
        return None


def _of_classic(writer: "DataStreamWriter") -> tuple[str | None, Trigger | None, Mapping[str, str] | None]:
    java: Any = writer._jwrite
    return (
        _seen(lambda: str(_field(java, "outputMode", "outputmode").toString()).lower()),
        _seen(lambda: _trigger(_field(java, "trigger"))),
        _seen(lambda: _scala_map(_field(java, "extraOptions"))),
    )


def _of_client(writer: "DataStreamWriter") -> tuple[str | None, Trigger | None, Mapping[str, str] | None]:
    message: Any = getattr(writer, "_write_proto", None)
    if message is None:
        return None, None, None
    chosen = message.WhichOneof("trigger")
    trigger = _TRIGGERS[_CLIENT_TRIGGERS.get(chosen, "ProcessingTimeTrigger")]
    return (message.output_mode or "append").lower(), trigger, {key.lower(): value for key, value in message.options.items()}


def _sink_of(writer: "DataStreamWriter") -> str | None:
    if is_of_client(writer):
        return sink_in_message(writer._write_proto)  # type: ignore[attr-defined]
    default = str(frame_of_writer(writer).sparkSession.conf.get("spark.sql.sources.default"))
    return sink_in(str(_field(writer._jwrite, "source")), default=default)


def _field(java: Any, *names: str) -> Any:
    """Return the private field of a Java object that has one of `names`."""
    for declared in java.getClass().getDeclaredFields():
        if declared.getName() in names:
            declared.setAccessible(True)
            return declared.get(java)
    raise AttributeError(names[0])


def _scala_map(java: Any) -> Mapping[str, str]:
    return {str(entry._1()).lower(): str(entry._2()) for entry in java_items(java)}


def _trigger(java: Any) -> Trigger:
    return _TRIGGERS[str(java.getClass().getSimpleName()).rstrip("$")]


def _execution(rows: DataFrame) -> Any:
    """Return Spark's own object for the query whose batch `rows` is."""
    query = running_query(rows)
    session = rows.sparkSession
    if query is None:
        return None
    active = session._jsparkSession.sharedState().activeStreamingQueries()
    return active.get(session._jvm.java.util.UUID.fromString(query))  # type: ignore[union-attr]


def observed_counts(rows: DataFrame) -> Mapping[str, int]:
    """Return the first value of each metric that the query of a batch observes, once the batch was computed; none on Connect."""
    execution = _seen(lambda: _execution(rows))
    found = None if execution is None else _seen(lambda: execution.lastExecution().observedMetrics())
    return {} if found is None else _seen(lambda: {str(one._1()): int(one._2().get(0)) for one in java_items(found)}) or {}


def file_relations(rows: DataFrame) -> Sequence[FileRelation]:
    """Return the directories that the query of a batch reads, where Spark takes columns of the path; none on Connect."""
    execution = _seen(lambda: _execution(rows))
    if execution is None:
        return ()
    leaves = _seen(lambda: list(java_items(execution.analyzedPlan().collectLeaves()))) or []
    found = [_seen(lambda leaf=leaf: _file_relation(leaf)) for leaf in leaves]  # type: ignore[misc]
    return [relation for relation in found if relation is not None]


def _file_relation(leaf: Any) -> FileRelation | None:
    """Return what a leaf reads; None for another source, and where its options or a pattern leave the path without columns."""
    if str(leaf.nodeName()) != "StreamingRelation":
        return None
    options = _scala_map(leaf.dataSource().options())
    path = options.get("path", "")
    if not path or set(path) & _PATTERNS or "basepath" in options or options.get("recursivefilelookup", "").lower() == "true":
        return None
    return FileRelation(path=path, columns=tuple(str(column.name()) for column in java_items(leaf.output())))


def run_of_batch(rows: DataFrame) -> str | None:
    """Return the id of the run that `rows` is a batch of: every start of a query has its own. None on Spark Connect."""
    execution = _seen(lambda: _execution(rows))
    return None if execution is None else _seen(lambda: str(execution.runId()))


def _opened_sources(frame: DataFrame) -> tuple[OpenedSource, ...]:
    if is_of_client(frame):
        return sources_of_client(frame)
    return _leaves(frame._jdf.queryExecution().analyzed())


def _leaves(plan: Any) -> tuple[OpenedSource, ...]:
    return tuple(_opened(leaf) for leaf in java_items(plan.collectLeaves()) if leaf.isStreaming())


def _opened(leaf: Any) -> OpenedSource:
    node_name = str(leaf.nodeName())
    if node_name == "StreamingRelation":
        options = _scala_map(leaf.dataSource().options())
        return OpenedSource(
            format=str(leaf.dataSource().className()),
            options=options,
            paths=tuple(value for key, value in options.items() if key == "path"),
        )
    if node_name != "StreamingRelationV2":
        return OpenedSource(format=node_name, options=None)
    options = {str(key).lower(): str(value) for key, value in dict(leaf.extraOptions().asCaseSensitiveMap()).items()}
    return OpenedSource(format=str(leaf.sourceName()), options=options)


def _of_sources(opened: Sequence[OpenedSource] | None, names: Sequence[SourceName], spark: SparkSession) -> SourceFacts:
    if opened is None:
        return SourceFacts()
    unique = [source for index, source in enumerate(opened) if source not in opened[:index]]
    given = names if len(names) == len(unique) else [SourceName(f"source-{index + 1}") for index in range(len(unique))]
    named = dict(zip(given, unique, strict=True))
    kafka = [name for name, source in named.items() if short_format(source.format) == "kafka"]
    hidden = [name for name, source in named.items() if source.options is None]
    return SourceFacts(
        claims=opened_claims(named, relevant_confs(spark)),
        paths={name: path for name, source in named.items() for path in source.paths},
        unseen=(
            *(f"the options of source {name}" for name in hidden),
            *(f"what the brokers still hold for source {name}" for name in kafka),
        ),
    )


def running_query(rows: DataFrame) -> QueryId | None:
    """Return the id of the query that `rows` is a batch of, which says whose checkpoint Spark uses.

    None where Spark does not show it: on Spark Connect, or outside a query's thread.
    """
    context = getattr(rows.sparkSession, "sparkContext", None)
    found = None if context is None else context.getLocalProperty(_QUERY_ID)
    return None if found is None else QueryId(found)
