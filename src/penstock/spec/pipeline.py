"""Settings of a whole pipeline with its transform and trigger, and of the part that a `Delivery` needs."""

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError
from typing_extensions import Self

from penstock.core.bad_record import NAME
from penstock.core.model import Guarantee
from penstock.spark.session_settings import SOURCE_EVOLUTION
from penstock.spec.combinations import mode_complaints, own_output_complaints, place_complaints
from penstock.spec.complaint import Complaint, complaint_error, complaints_error
from penstock.spec.export import EventTarget, EventTargets, OpenLineage, OpenTelemetry
from penstock.spec.kafka import Kafka
from penstock.spec.listening import MetricsEndpoint
from penstock.spec.location import (
    Checkpoint,
    LedgerPlace,
    Quarantine,
    ShortCheckpoint,
    ShortLedger,
    ShortQuarantine,
    ShortSpool,
    SpoolPlace,
)
from penstock.spec.place import Directory
from penstock.spec.receive import Receive
from penstock.spec.scalar import Duration, Name, PythonName, ViewName
from penstock.spec.settings import OneKey, Settings
from penstock.spec.sink import GivenSink, Sink
from penstock.spec.source import Options, Source
from penstock.spec.sql import SQL
from penstock.spec.state_limits import StateLimits

_ORDER = (
    "pipeline", "home", "guarantee", "spark", "receive", "sources", "named_sources", "transform", "sinks",
    "quarantine", "output_mode", "trigger", "checkpoint", "ledger", "spool", "publish_behind", "publish_on", "retry_timeout",
    "metrics",
    "state_limits", "on_event", "opentelemetry", "openlineage",
)  # fmt: skip
NO_QUARANTINE = "is quarantine, and the pipeline has none"
ADD_QUARANTINE = "Add quarantine: ./quarantine, a directory or a URL of a store."
PublishOn = Literal["driver", "executors"]
OutputMode = Literal["append", "update", "complete"]
_Place: TypeAlias = str | os.PathLike[str] | Mapping[str, Any]


class Transform(OneKey):
    """One query over the sources, as SQL or as a Python function."""

    sql: SQL | None = Field(default=None, description="A Spark SQL query; every source is a view of its name.")
    python: PythonName | None = Field(
        default=None,
        description="`package.module:function`, called once as `function(spark, sources: dict[str, DataFrame]) -> DataFrame`.",
    )

    def _not_one(self, given: Sequence[str]) -> PydanticCustomError:
        has = "has both sql and python" if given else "has neither sql nor python"
        return complaint_error(has, remedy="Keep exactly one of them, or leave transform out to pass the rows on as they are.")


class Trigger(OneKey):
    """When the next batch starts. Exactly one of the keys."""

    replaced_by: ClassVar = " On the command line, `--set 'trigger={available_now: true}'` replaces what the file has."

    processing_time: Duration | None = Field(
        default=None, description="A batch at this interval, such as `10s`; `0` starts the next one as soon as the last is done."
    )
    available_now: Literal[True] | None = Field(
        default=None,
        description="`true`: deliver everything that is there now, in as many batches as the rate limits ask for, then stop.",
    )
    once: Literal[True] | None = Field(
        default=None, description="`true`: treated as `available_now`, which Spark replaced it with."
    )
    continuous: Duration | None = Field(
        default=None, description="Spark's continuous processing with this commit interval. Delivers at least once only."
    )
    real_time: Duration | None = Field(
        default=None, description="Spark's real-time mode with batches of this length. Delivers at least once only."
    )

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            processing_time: int | str | None = None,
            available_now: Literal[True] | None = None,
            once: Literal[True] | None = None,
            continuous: int | str | None = None,
            real_time: int | str | None = None,
        ) -> None: ...

    @property
    def batches_have_identity(self) -> bool:
        """Whether Spark logs a batch's offsets before it runs, so that a repeated batch can be recognised."""
        return self.continuous is None and self.real_time is None

    def spark_arguments(self) -> Mapping[str, str | bool]:
        """Return the keyword argument for `DataStreamWriter.trigger`."""
        if self.processing_time is not None:
            return {"processingTime": f"{self.processing_time} milliseconds"}
        if self.continuous is not None:
            return {"continuous": f"{self.continuous} milliseconds"}
        if self.real_time is not None:
            return {"realTime": f"{self.real_time} milliseconds"}
        return {"availableNow": True}


def _below(values: Mapping[str, Any], name: str) -> str:
    return os.path.join(values.get("home", ""), name)


class Spark(Settings):
    """What to add to the Spark session. An existing session and `spark-submit` take precedence."""

    master: str | None = Field(
        default=None, min_length=1, description="Spark's master URL, such as `local[*]`, if nothing else gives one."
    )
    conf: Options = Field(default_factory=dict, description="Spark settings.")
    packages: tuple[str, ...] = Field(
        default=(), strict=False, description="Maven coordinates of connector jars (`group:artifact:version`) to load."
    )

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            master: str | None = None,
            conf: Mapping[str, str | float | bool] = ...,
            packages: tuple[str, ...] | list[str] = (),
        ) -> None: ...


class DeliverySettings(Settings):
    """What a `Delivery` needs: the sinks, the guarantee, and where checkpoint, ledger and spool are."""

    pipeline: Name = Field(
        description="Identity of the exactly-once ledger. It outlives every checkpoint, so it should never change."
    )
    home: Directory = Field(description="Directory below which checkpoint, ledger and spool are unless said otherwise.")
    guarantee: Guarantee = Field(
        default=Guarantee.EXACTLY_ONCE,
        strict=False,
        description="What is demanded: `exactly_once` or `at_least_once`. Less than demanded is refused before it starts.",
    )
    sinks: Mapping[Name, Sink] = Field(
        min_length=1, description="Name of each sink and its settings. One pass over the data feeds all of them."
    )
    checkpoint: ShortCheckpoint = Field(
        default_factory=lambda values: Checkpoint(url=_below(values, "checkpoint")),
        description="Spark's checkpoint: a directory or a URL of a store; or a mapping as below.",
        json_schema_extra={"x-default": "<home>/checkpoint"},
    )
    ledger: ShortLedger = Field(
        default_factory=lambda values: LedgerPlace(url=f"sqlite:///{_below(values, 'ledger.db')}"),
        description="The ledger: a SQLite file (`sqlite:///path`), a directory, `postgresql://…`, `mysql://…` or a URL of a "
        "store; or a mapping as below.",
        json_schema_extra={"x-default": "sqlite:///<home>/ledger.db"},
    )
    spool: ShortSpool = Field(
        default_factory=lambda values: SpoolPlace(url=_below(values, "spool")),
        description="Where batches wait for sinks that cannot hold data invisibly: a directory, shared storage if executors are "
        "elsewhere, or a URL of a store; or a mapping as below.",
        json_schema_extra={"x-default": "<home>/spool"},
    )

    publish_behind: bool = Field(
        default=False,
        description="Publish a batch while Spark computes the next one, for throughput: Spark goes on as soon as it is decided, "
        "which nothing undoes, and the sinks show it a little later.",
    )
    publish_on: PublishOn = Field(
        default="driver",
        description="Which processes publish a decided batch into `kafka`, `cassandra` and `http`: the `driver`, or tasks on the "
        "`executors`, as many as the sink's `lanes` or `concurrency` says, into Cassandra up to 32. A batch of at most 100 KiB a "
        "task stays with the driver, as do other sinks.",
    )
    retry_timeout: Duration = Field(
        default=60_000,
        description="How long an append to the ledger or a publication is tried, with growing pauses, while a ledger or sink "
        "does not answer; then the run ends with exit code 75. Both are tried twice at least.",
        json_schema_extra={"default": "1m"},
    )

    @model_validator(mode="after")
    def _places_do_not_overlap(self) -> Self:
        own = {"checkpoint": self.checkpoint.url, "ledger": self.ledger.url, "spool": self.spool.url}
        quarantine: Quarantine | None = getattr(self, NAME, None)
        found = place_complaints(self.sinks, own if quarantine is None else {**own, NAME: quarantine.url})
        if quarantine is None:
            remedy = ADD_QUARANTINE if NAME in type(self).model_fields else "Take fail: only a pipeline file has a quarantine."
            found += [
                Complaint(message=NO_QUARANTINE, remedy=remedy, at=("sinks", name, sink.puts_aside))
                for name, sink in self.sinks.items()
                if sink.puts_aside is not None
            ]
        if found:
            raise complaints_error(found)
        return self


class PipelineSettings(DeliverySettings):
    """The whole pipeline file, checked, with every path made absolute and every default filled in."""

    spark: Spark = Field(default_factory=Spark, description="What to add to the Spark session.")
    receive: Receive | None = Field(
        default=None, description="What `penstock receive` listens on; the pipeline itself reads the journal by a source."
    )
    sources: Mapping[ViewName, Source] = Field(
        default_factory=dict,
        min_length=1,
        description="Name of each source and its settings. Their number and order are kept for the life of the checkpoint. "
        "`run`, `check` and `explain` need it; a file beside a query that your code starts, for the other commands, does not.",
    )
    named_sources: bool = Field(
        default=False,
        description="Let Spark know the sources by their names and not by their place in the query: under one checkpoint they "
        "can be reordered, added and taken out. Needs Spark 4.3. Each source is read in one place. A checkpoint that has them by "
        "place is refused until `penstock checkpoint migrate` was run.",
    )
    transform: Transform | None = Field(
        default=None, description="A query over the sources; left out, the only source is passed on."
    )
    quarantine: ShortQuarantine | None = Field(
        default=None,
        description="Where records go that cannot be decoded or do not meet a rule, if a source says so: a directory or a URL of "
        "a store; or a mapping as below.",
    )
    output_mode: OutputMode = Field(
        default="append",
        description="Which rows of the result a batch sends: new ones (`append`), changed ones (`update`) or all (`complete`).",
    )
    trigger: Trigger = Field(
        default_factory=lambda: Trigger(processing_time=0),
        description="When the next batch starts; left out, as soon as the last is done.",
    )
    metrics: MetricsEndpoint | None = Field(
        default=None, description="Where `run` serves metrics and health of the pipeline while it runs; left out, nowhere."
    )
    state_limits: StateLimits = Field(
        default_factory=StateLimits, description="What the state of the query can grow to before somebody is warned."
    )
    on_event: EventTargets = Field(
        default_factory=dict, description="Who is told when a run fails, is fenced, stalls or recovers, each under a name."
    )
    opentelemetry: OpenTelemetry | None = Field(
        default=None, description="Send traces and metrics by OTLP; left out, nothing is sent."
    )
    openlineage: OpenLineage | None = Field(default=None, description="Send lineage by OpenLineage; left out, nothing is sent.")

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            pipeline: str,
            home: str | os.PathLike[str],
            sinks: Mapping[str, GivenSink],
            sources: Mapping[str, Source | Mapping[str, Any]] = ...,
            named_sources: bool = False,
            guarantee: Guarantee | Literal["exactly_once", "at_least_once"] = Guarantee.EXACTLY_ONCE,
            spark: Spark | Mapping[str, Any] = ...,
            receive: Receive | Mapping[str, Any] | None = None,
            transform: Transform | Mapping[str, Any] | None = None,
            quarantine: Quarantine | _Place | None = None,
            output_mode: OutputMode = "append",
            trigger: Trigger | Mapping[str, Any] = ...,
            checkpoint: _Place = ...,
            ledger: _Place = ...,
            spool: _Place = ...,
            publish_behind: bool = False,
            publish_on: PublishOn = "driver",
            retry_timeout: int | str = "1m",
            metrics: MetricsEndpoint | Mapping[str, Any] | None = None,
            state_limits: StateLimits | Mapping[str, Any] = ...,
            on_event: Mapping[str, EventTarget | Mapping[str, Any]] = ...,
            opentelemetry: OpenTelemetry | Mapping[str, Any] | None = None,
            openlineage: OpenLineage | Mapping[str, Any] | None = None,
        ) -> None: ...

    @property
    def paths(self) -> Mapping[str, str]:
        """What file sources read, by the source's name."""
        return {name: source.path for name, source in self.sources.items() if source.path}

    @classmethod
    def valid_keys(cls) -> tuple[str, ...]:
        """Return the keys in the order in which people write them."""
        return tuple(sorted(super().valid_keys(), key=_ORDER.index))

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        found = list(mode_complaints(self.sinks, self.output_mode))
        found += source_complaints(self)
        found += quarantine_complaints(self)
        found += encode_complaints(self.sinks)
        if found:
            raise complaints_error(found)
        return self


def source_complaints(settings: PipelineSettings) -> list[Complaint]:
    """Return complaints about several sources without a transform, and sources that read what a sink of the pipeline writes."""
    found = []
    if settings.transform is None and len(settings.sources) > 1:
        message = f"is missing, but there are {len(settings.sources)} sources ({', '.join(settings.sources)})"
        found.append(Complaint(message=message, remedy="Add transform: {sql: …} that joins or unites them.", at=("transform",)))
    if not settings.trigger.batches_have_identity:
        found += [_lossy(name, source) for name, source in settings.sources.items() if source.is_read_again]
    if str(settings.spark.conf.get(SOURCE_EVOLUTION, "false")).lower() == "true":
        remedy = "Take it out, and write `named_sources: true` at the top of the file."
        at = ("spark", "conf", SOURCE_EVOLUTION)
        found.append(Complaint(message="is set by a key of its own", remedy=remedy, at=at))
    return [*found, *own_output_complaints(settings.sinks, settings.paths)]


def _lossy(name: str, source: Source) -> Complaint:
    """Return the complaint about rows that the query leaves out, and that nothing would count or put aside."""
    at = ("expect",) if source.expect else ("decode", "undecodable")
    message = "reads each batch once more, and triggers continuous and real_time have none to read"
    return Complaint(message=message, remedy="Take it out, or use trigger processing_time.", at=("sources", name, *at))


def quarantine_complaints(settings: PipelineSettings) -> list[Complaint]:
    """Return complaints about sources that lack a quarantine, and about a sink that has its name."""
    if settings.quarantine is None:
        places = [("sources", name, "decode", "undecodable") for name in quarantined(settings)]
        places += [
            ("sources", name, "expect", rule)
            for name, source in settings.sources.items()
            for rule, given in source.expect.items()
            if given.on_violation == "quarantine"
        ]
        return [Complaint(message=NO_QUARANTINE, remedy=ADD_QUARANTINE, at=at) for at in places]
    taken = Complaint(message="is the name of the quarantine", remedy="Give the sink another name.", at=("sinks", NAME))
    return [taken] if NAME in settings.sinks else []


def encode_complaints(sinks: Mapping[str, Any]) -> list[Complaint]:
    """Return complaints about sinks that encode a column in another way than a sink before them: all get the same rows."""
    given = [(name, sink, sink.encode) for name, sink in sinks.items() if isinstance(sink, Kafka) and sink.encode is not None]
    found = []
    for name, sink, encode in given[1:]:
        first_name, first, first_encode = given[0]
        by_topic = any(coded.subject is None for coded in encode.columns.values())
        if encode != first_encode or (by_topic and sink.topic != first.topic):
            message = f"differs from that of sinks.{first_name}, and every sink gets the same rows"
            remedy = "Write the same, with `subject`; or make two pipelines of them."
            found.append(Complaint(message=message, remedy=remedy, at=("sinks", name, "encode")))
    return found


def quarantined(settings: PipelineSettings) -> tuple[str, ...]:
    """Return the sources that put undecodable records into the quarantine."""
    return tuple(name for name, source in settings.sources.items() if source.puts_aside)


def with_rules(settings: PipelineSettings) -> tuple[str, ...]:
    """Return the sources whose rows have to meet rules."""
    return tuple(name for name, source in settings.sources.items() if source.expect)


def without_ledger(settings: DeliverySettings) -> str | None:
    """Return a sentence about a trigger whose batches no ledger can record (continuous, real_time), None for any other."""
    if not isinstance(settings, PipelineSettings) or settings.trigger.batches_have_identity:
        return None
    name = "continuous" if settings.trigger.continuous is not None else "real_time"
    return f"Trigger {name}: a sink of Spark's own takes the rows, at least once; the ledger notes nothing of them."
