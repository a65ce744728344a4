"""Construction of the real ledger, sinks and checkpoint from settings. The only module that knows every kind of sink."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.blob.url import hadoop_url
from penstock.checkpoint.spark_checkpoint import SparkCheckpoint
from penstock.core.bad_record import NAME
from penstock.core.guarantee import Claim
from penstock.core.model import AccountName, Guarantee, Nonce, PipelineName, SinkName, SourceName
from penstock.errors import DependencyMissing, GuaranteeTooWeak, Usage
from penstock.ledger.open import open_ledger
from penstock.protocols import Ledger, Sink
from penstock.run.fault_points import require_known
from penstock.run.runtime import Runtime
from penstock.run.user_sink import user_written
from penstock.source.chain.settings import chained_sources
from penstock.source.journal.journals import journals_of
from penstock.source.kafka.options import is_kafka
from penstock.source.kafka.records_again import KafkaRecords
from penstock.source.kafka.watch import watch_of
from penstock.source.kinesis.streams import kinesis_sources
from penstock.spark.column_name import quoted
from penstock.spec.delta import Delta
from penstock.spec.http import HTTP
from penstock.spec.iceberg import Iceberg
from penstock.spec.kafka import Kafka
from penstock.spec.location import FAIL, QUARANTINE, Quarantine, Route, ShortAccount
from penstock.spec.pipeline import DeliverySettings, PipelineSettings, quarantined
from penstock.spec.selection import TakesRows
from penstock.spec.sink import Console, Memory, Parquet, PythonSink
from penstock.spec.table import (
    DBAPI,
    Cassandra,
    DuckDB,
    MySQL,
    PostgreSQL,
    Redshift,
    SQLite,
    SQLServer,
    Table,
)
from penstock.stage.quarantine import QuarantineMember
from penstock.stage.rules import RuleCheck
from penstock.support.extras import install_command

if TYPE_CHECKING:
    from penstock.registry.decoding import DecodePass
    from penstock.run.preflight.description import RunDescription
    from penstock.sink.kafka.records import RecordColumns
    from penstock.sink.parquet import ParquetSink
    from penstock.sink.parquet.account import Account
    from penstock.sink.quarantine import QuarantineSink
    from penstock.sink.spool import SpoolRoot
    from penstock.source.rows_again import FileRows, KafkaRows


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryPlan:
    """The complete configuration of a delivery. Picklable: it holds no handles.

    `sources` are in the order of the query's plan; empty if unnamed. `modules` is the directory of a pipeline file: the user's
    modules are found there as well as on the search path. `decoding` is how the query decodes its sources; the quarantine must
    use the same schemas. `source_schemas`: Spark's JSON of the columns of each source that has rules. `left`: see `Runtime.left`.
    `output_mode` is the query's, None before it is known; `claims` is what each part of it guarantees. `description` is recorded
    when the run opens; None where no pipeline file describes it, or nothing is to run.
    """

    settings: DeliverySettings
    sources: tuple[SourceName, ...] = ()
    modules: Path | None = None
    decoding: "Mapping[SourceName, DecodePass]" = field(default_factory=dict)
    source_schemas: Mapping[SourceName, str] = field(default_factory=dict)
    left: Nonce | None = None
    output_mode: str | None = None
    description: "RunDescription | None" = None
    claims: tuple[Claim, ...] = ()

    @property
    def pipeline(self) -> PipelineName:
        return PipelineName(self.settings.pipeline)

    @property
    def spark_checkpoint(self) -> str:
        """The checkpoint location as a URL that Spark understands."""
        return hadoop_url(self.settings.checkpoint.url)

    @property
    def digest(self) -> str:
        """Fingerprint of the settings with secrets masked. The ledger records it, which shows when settings changed."""
        shown = json.dumps(self.settings.shown(), sort_keys=True, default=str)
        return hashlib.sha256(shown.encode()).hexdigest()[:16]


def assemble(plan: DeliveryPlan, *, demanded: bool = True) -> Runtime:
    """Open the ledger and build all else that a delivery needs. Raises Usage for an armed fault that could never fire.

    If `demanded`, raises GuaranteeTooWeak for a sink that gives less than is demanded.
    """
    sinks = sinks_of(plan)
    require_known()
    if demanded:
        require_guarantee(plan, sinks)
    return Runtime(
        pipeline=plan.pipeline,
        ledger=ledger_of(plan),
        sinks=sinks,
        checkpoint=checkpoint_of(plan),
        sources=plan.sources,
        named_sources=getattr(plan.settings, "named_sources", None),
        digest=plan.digest,
        demanded=plan.settings.guarantee,
        watch=watch_of(plan.settings),
        journals=journals_of(plan.settings),
        tables=chained_sources(plan.settings),
        streams=kinesis_sources(plan.settings),
        quarantine=_quarantine_member(plan, sinks),
        rules=_rule_check(plan),
        left=plan.left,
        publish_on=plan.settings.publish_on,
        retry_timeout_s=plan.settings.retry_timeout / 1000,
    )


def ledger_of(plan: DeliveryPlan) -> Ledger:
    """Open the pipeline's ledger; the caller closes it."""
    place = plan.settings.ledger
    return open_ledger(place.url, pipeline=plan.pipeline, options=place.options)


def spool_of(plan: DeliveryPlan) -> "SpoolRoot":
    """Return the pipeline's spool. Nothing is connected."""
    from penstock.sink.spool import SpoolRoot

    place = plan.settings.spool
    return SpoolRoot(url=place.url, options=place.options)


def checkpoint_of(plan: DeliveryPlan) -> SparkCheckpoint:
    """Return the pipeline's checkpoint. Nothing is read yet."""
    place = plan.settings.checkpoint
    return SparkCheckpoint(place.url, options=place.options)


def sinks_of(plan: DeliveryPlan) -> tuple[Sink, ...]:
    """Return the pipeline's sinks in the order of the file, the quarantine last. Nothing is connected or written yet."""
    given = tuple(sink_of(SinkName(name), plan) for name in plan.settings.sinks)
    quarantine = quarantine_of(plan)
    return given if quarantine is None else (*given, quarantine)


def selections_of(settings: DeliverySettings) -> Mapping[SinkName, TakesRows]:
    """Return the settings of the sinks that take some of the rows or columns only, or that delete rows."""
    return {SinkName(name): sink for name, sink in settings.sinks.items() if not sink.takes_all}


def sink_of(name: SinkName, plan: DeliveryPlan) -> Sink:
    """Return one sink of the file. Nothing is connected or written yet. Raises DependencyMissing if its package is."""
    settings: Any = plan.settings.sinks[name]
    try:
        return _BUILDERS[type(settings)](name, settings, plan)
    except ImportError as cause:
        raise DependencyMissing(
            f"Sink {name!r} needs the package {cause.name}, which is not installed.",
            remedy=f"Install it on the driver: {install_command(settings.type, package=cause.name)}",
        ) from cause


def quarantine_of(plan: DeliveryPlan) -> "QuarantineSink | None":
    """Return the quarantine, None if the pipeline has none. Nothing is connected or written yet."""
    place: Quarantine | None = getattr(plan.settings, NAME, None)
    if place is None:
        return None
    from penstock.sink.quarantine import QuarantineSink

    return QuarantineSink(pipeline=plan.pipeline, account=_account(place))


def _quarantine_member(plan: DeliveryPlan, sinks: Sequence[Sink]) -> QuarantineMember | None:
    """Return the quarantine's part in the staging pass, by the `decoding` that the query decodes with; None without one."""
    settings = plan.settings
    if not isinstance(settings, PipelineSettings) or settings.quarantine is None:
        return None
    [quarantine] = [sink for sink in sinks if sink.name == NAME]
    read = {
        SourceName(name): KafkaRecords(name, settings.sources[name]) for name in quarantined(settings) if name in plan.decoding
    }
    return QuarantineMember(
        sink=quarantine,
        settings=settings.quarantine,
        sources=read,
        passes=plan.decoding,
        puts_aside=frozenset(SinkName(name) for name, sink in settings.sinks.items() if sink.puts_aside is not None),
    )


def _rule_check(plan: DeliveryPlan) -> RuleCheck | None:
    """Return the rules of the sources, None if there are none, or if nothing is staged: then no source was opened."""
    settings = plan.settings
    if not isinstance(settings, PipelineSettings) or not plan.source_schemas:
        return None
    rules = {SourceName(name): source.expect for name, source in settings.sources.items() if source.expect}
    return RuleCheck(rules=rules, sources={name: _rows_again(name, plan) for name in rules}, quarantine=settings.quarantine)


def _rows_again(name: SourceName, plan: DeliveryPlan) -> "KafkaRows | FileRows":
    from penstock.source.rows_again import FileRows, KafkaRows  # with pyspark, which the commands without Spark do not load

    assert isinstance(plan.settings, PipelineSettings)
    source = plan.settings.sources[name]
    if is_kafka(source):
        return KafkaRows(name=name, source=source, decode_pass=plan.decoding.get(name))
    return FileRows(name=name, source=source, schema=plan.source_schemas[name])


def table_of(plan: DeliveryPlan, name: str | None) -> "ParquetSink":
    """Return the parquet sink `name`, or the only one if `name` is None; the quarantine by its name alone. Raises Usage."""
    quarantine = quarantine_of(plan) if name == NAME else None
    if quarantine is not None:
        return quarantine
    sinks = plan.settings.sinks
    keeping = {own: settings for own, settings in sinks.items() if isinstance(settings, Parquet)}
    fitting = [own for own in keeping if name in {None, own}]
    if len(fitting) != 1:
        named = ", ".join(keeping)
        found = f"Expected one sink of type parquet, but the pipeline has {named or 'none'}."
        if name is not None:
            is_other = name in sinks
            found = f"Sink {name!r} is not of type parquet." if is_other else f"The pipeline has no sink {name!r}."
        raise Usage(
            found,
            remedy=f"Name one of type parquet: {named}." if keeping else "Only sinks of type parquet keep a table as files.",
        )
    return _parquet(SinkName(fitting[0]), keeping[fitting[0]], plan)


def require_guarantee(plan: DeliveryPlan, sinks: tuple[Sink, ...]) -> None:
    """Raise GuaranteeTooWeak if exactly-once is demanded of a sink that cannot give it."""
    weak = [sink.name for sink in sinks if not sink.exactly_once]
    if weak and plan.settings.guarantee is Guarantee.EXACTLY_ONCE:
        raise GuaranteeTooWeak(
            f"The pipeline demands exactly_once, but sink {weak[0]!r} can only give at_least_once.",
            remedy="Take the sink out, or demand `guarantee: at_least_once`.",
        )


def _parquet(name: SinkName, settings: Parquet, plan: DeliveryPlan) -> "ParquetSink":
    from penstock.sink.parquet import ParquetSink

    accounts = {AccountName(account): _account(place) for account, place in settings.accounts.items()}
    return ParquetSink(
        name=name,
        pipeline=plan.pipeline,
        accounts=accounts,
        route_sql=route_sql(settings.route, tuple(settings.accounts)),
        unrouted=None if settings.unrouted in {FAIL, QUARANTINE} else AccountName(settings.unrouted),
        partition_by=settings.partition_by,
        compression=settings.compression,
        column_encoding=settings.column_encoding,
        dictionary_pagesize_limit_bytes=settings.dictionary_pagesize_limit,
        target_file_size_bytes=settings.target_file_size,
        keeps_files=settings.existing_rows == "keep",
    )


def _account(place: ShortAccount) -> "Account":
    from penstock.sink.parquet import directory_account, object_account

    if place.directory is None:
        return object_account(place.url, options=place.options)
    return directory_account(place.directory, options=place.options)


def _delta(name: SinkName, settings: Delta, plan: DeliveryPlan) -> Sink:
    from penstock.run.lake_sinks import delta_sink

    return delta_sink(name, settings, pipeline=plan.pipeline, spool=spool_of(plan))


def _iceberg(name: SinkName, settings: Iceberg, plan: DeliveryPlan) -> Sink:
    from penstock.run.lake_sinks import iceberg_sink

    return iceberg_sink(name, settings, pipeline=plan.pipeline, spool=spool_of(plan))


def _table(name: SinkName, settings: Table, plan: DeliveryPlan) -> Sink:
    from penstock.run.table_sinks import table_sink

    return table_sink(name, settings, spool=spool_of(plan))


def _kafka(name: SinkName, settings: Kafka, plan: DeliveryPlan) -> Sink:
    from penstock.sink.kafka.sink import KafkaSink
    from penstock.sink.kafka.target import TopicTarget

    target = TopicTarget(
        topic=settings.topic,
        topics=settings.topics,
        markers=settings.marker_topic or f"penstock.{plan.pipeline}.{name}",
        shared=settings.shared,
    )
    return KafkaSink(
        name=name,
        pipeline=plan.pipeline,
        bootstrap=settings.bootstrap,
        target=target,
        spool=spool_of(plan),
        options=settings.options,
        lanes=settings.lanes,
        transaction_bytes=settings.transaction_size,
        timeout_ms=settings.transaction_timeout,
        keyed=settings.mode == "keyed",
        record_columns=_record_columns(settings),
        deletes=settings.deletes is not None,
    )


def _record_columns(settings: Kafka) -> "RecordColumns | None":
    from penstock.sink.kafka.records import RecordColumns

    value = settings.value
    if value is None:
        return None
    columns = {"key": settings.key, "headers": settings.headers, "partition": settings.partition}
    return RecordColumns(value=value.column, json=value.json_of, **columns)


def _http(name: SinkName, settings: HTTP, plan: DeliveryPlan) -> Sink:
    from penstock.sink.http.client import Endpoint
    from penstock.sink.http.layout import Layout
    from penstock.sink.http.sink import HttpSink

    endpoint = Endpoint(
        url=settings.url,
        name=settings.place,
        timeout_s=settings.timeout / 1000,
        headers=settings.headers,
        user=settings.user,
        password=settings.password,
        token=settings.token,
        signing_key=settings.signing_key,
        ca_file=settings.ca_file,
        certificate_file=settings.certificate_file,
        key_file=settings.key_file,
    )
    layout = Layout(
        body=settings.body, rows=settings.rows, size_bytes=settings.request_size, lanes=settings.concurrency, key=settings.key
    )
    remembers = settings.receiver == "idempotent"
    return HttpSink(name=name, spool=spool_of(plan), endpoint=endpoint, layout=layout, remembers_keys=remembers)


def _console(name: SinkName, settings: Console, plan: DeliveryPlan) -> Sink:
    from penstock.sink.console import ConsoleSink

    return ConsoleSink(name=name, rows=settings.rows, truncate=settings.truncate, spool=spool_of(plan))


def _memory(name: SinkName, settings: Memory, plan: DeliveryPlan) -> Sink:  # noqa: ARG001 - one signature for all
    from penstock.sink.memory import MemorySink

    return MemorySink(name=name, spool=spool_of(plan), write="replace" if plan.output_mode == "complete" else "append")


def _user_written(name: SinkName, settings: PythonSink, plan: DeliveryPlan) -> Sink:
    return user_written(name, settings, pipeline=plan.pipeline, spool=spool_of(plan), modules=plan.modules)


_BUILDERS: Mapping[type, Callable[[SinkName, Any, DeliveryPlan], Sink]] = {
    Parquet: _parquet,
    Delta: _delta,
    Iceberg: _iceberg,
    **dict.fromkeys((SQLite, DuckDB, PostgreSQL, MySQL, Redshift, SQLServer, Cassandra, DBAPI), _table),
    Kafka: _kafka,
    HTTP: _http,
    Console: _console,
    Memory: _memory,
    PythonSink: _user_written,
}


def route_sql(route: Route | None, accounts: tuple[str, ...]) -> str | None:
    """Return the Spark SQL expression that yields a row's account, None without a route."""
    if route is None:
        return None
    if route.column is not None:
        return f"CAST({quoted(route.column)} AS STRING)"
    if route.hash is not None:
        columns = ", ".join(quoted(column) for column in route.hash)
        names = ", ".join(_literal(account) for account in accounts)
        return f"element_at(array({names}), CAST(pmod(xxhash64({columns}), {len(accounts)}) AS INT) + 1)"
    return route.sql


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
