"""A pipeline's status as metrics for Prometheus, by its conventions: https://prometheus.io/docs/practices/naming/.

Labels are names from the pipeline file, of topics and of journals, never of batches, files or rows: there are as many series as
the pipeline has places and inputs. Needs the extra `metrics`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from penstock.observe.look import Look
from penstock.observe.status import Status
from penstock.source.chain.lag import TableLag
from penstock.source.journal.journals import JournalLag
from penstock.source.kafka.lag import TopicLag

HEALTH = ("new", "ok", "replay", "conflict")
PLACE_STATES = ("own", "empty", "foreign", "ahead", "lost", "unreachable")


_WANTS = (
    (
        "penstock_access_refused",
        "access",
        "1 if the newest run ended, or a place does not answer, as a login or token is refused.",
    ),
    ("penstock_place_full", "room", "1 if the newest run ended as a disk, quota or database is full."),
)


class StatusCollector(Collector):
    """Looks at the pipelines whenever it is scraped. A pipeline that cannot be read has `penstock_up` 0 and nothing else."""

    def __init__(self, look: Callable[[], Iterable[Look]]) -> None:
        self._looks = look

    def collect(self) -> Iterator[Metric]:
        """Return the metrics of this moment. Called by `prometheus_client` in the thread of each request."""
        found = list(self._looks())
        up = GaugeMetricFamily("penstock_up", "Whether ledger and checkpoint of the pipeline could be read.", labels=["pipeline"])
        for look in found:
            up.add_metric([look.pipeline], float(look.status is not None))
        yield up
        known = [look.status for look in found if look.status is not None]
        yield _health(known)
        yield from _batches(known)
        yield from _delivered(known)
        yield _dropped(known)
        yield from _places(known)
        yield from _lag(known)
        yield from _waiting(known)
        yield from _state(known)

    def describe(self) -> Iterable[Metric]:
        """Return nothing, so that registering does not look at anything."""
        return ()


def _health(known: Sequence[Status]) -> Metric:
    family = GaugeMetricFamily(
        "penstock_health", "1 for what the next start would meet; it is refused on conflict.", labels=["pipeline", "state"]
    )
    for status in known:
        for state in HEALTH:
            family.add_metric([status.pipeline, state], float(state == status.health))
    return family


def _batches(known: Sequence[Status]) -> Iterator[Metric]:
    yield _per_pipeline(
        known,
        "penstock_driver_running",
        "Whether the process that opened the newest generation runs; absent if it is not one of this machine.",
        lambda status: None if status.driver is None or status.driver.state == "unknown" else int(status.is_running),
    )
    yield _per_pipeline(
        known,
        "penstock_newest_batch_published",
        "Whether every sink shows the newest decided batch; absent if a place does not tell.",
        lambda status: None if status.last_batch_id is None or status.published is None else int(status.published),
    )
    yield _per_pipeline(known, "penstock_generation", "How often the pipeline was opened.", lambda status: status.generation)
    yield _per_pipeline(
        known, "penstock_decided_batch_id", "Batch id of the newest decision.", lambda status: status.last_batch_id
    )
    yield _per_pipeline(
        known,
        "penstock_ledger_last_entry_timestamp_seconds",
        "When the newest entry of the ledger was written, in Unix time.",
        lambda status: None if status.last_written_at_ms is None else status.last_written_at_ms / 1000,
    )
    yield _per_pipeline(known, "penstock_ledger_position", "Position of the ledger's newest entry.", lambda status: status.tail)
    yield _per_pipeline(
        known,
        "penstock_spark_planned_batch_id",
        "Newest batch in the checkpoint's offset log.",
        lambda status: None if status.checkpoint is None else status.checkpoint.planned,
    )
    yield _per_pipeline(
        known,
        "penstock_spark_committed_batch_id",
        "Newest batch in the checkpoint's commit log.",
        lambda status: None if status.checkpoint is None else status.checkpoint.committed,
    )
    yield _last_error(known)
    for name, what, text in _WANTS:
        yield _per_pipeline(known, name, text, lambda status, what=what: int(status.lacks(what)))  # type: ignore[misc]
    yield _per_pipeline(
        known,
        "penstock_last_fenced_timestamp_seconds",
        "When a run was stopped last because a newer one has the pipeline, in Unix time.",
        lambda status: None if status.last_fence is None else status.last_fence.at_ms / 1000,
    )


def _last_error(known: Sequence[Status]) -> Metric:
    """Return when runs failed that no newer entry of the ledger followed: those are of a run that has not failed."""
    family = GaugeMetricFamily(
        "penstock_last_error_timestamp_seconds",
        "When the newest run ended by an error, in Unix time; absent once the ledger has a newer entry.",
        labels=["pipeline", "error", "exit_code"],
    )
    for status in known:
        if (error := status.last_error) is not None and error.at_ms >= (status.last_written_at_ms or 0):
            family.add_metric([status.pipeline, error.kind, str(error.exit_code)], error.at_ms / 1000)
    return family


def _per_pipeline(
    known: Sequence[Status], name: str, documentation: str, value: Callable[[Status], float | None]
) -> GaugeMetricFamily:
    """Return a gauge with the value of each pipeline that has one."""
    family = GaugeMetricFamily(name, documentation, labels=["pipeline"])
    for status in known:
        if (found := value(status)) is not None:
            family.add_metric([status.pipeline], found)
    return family


def _delivered(known: Sequence[Status]) -> Iterator[Metric]:
    labels = ["pipeline", "sink", "account"]
    rows = CounterMetricFamily("penstock_sink_rows", "Rows decided for this account.", labels=labels)
    files = CounterMetricFamily("penstock_sink_files", "Files decided for this account.", labels=labels)
    size = CounterMetricFamily("penstock_sink_bytes", "Bytes decided for this account.", labels=labels)
    for status in known:
        for sink, accounts in status.totals.items():
            for account, totals in accounts.items():
                names = [status.pipeline, sink, account]
                rows.add_metric(names, totals.rows)
                files.add_metric(names, totals.files)
                size.add_metric(names, totals.size_bytes)
    yield from (rows, files, size)


def _places(known: Sequence[Status]) -> Iterator[Metric]:
    labels = ["pipeline", "sink", "account"]
    marker = GaugeMetricFamily(
        "penstock_sink_marker_position",
        "Position of the ledger up to which this account's own marker shows everything.",
        labels=labels,
    )
    states = GaugeMetricFamily(
        "penstock_sink_state", "1 for what this account holds by its own marker.", labels=[*labels, "state"]
    )
    for status in known:
        for place in status.places:
            names = [status.pipeline, place.sink, place.account or ""]
            for state in PLACE_STATES:
                states.add_metric([*names, state], float(state == place.state))
            if place.mark is not None:
                marker.add_metric(names, place.mark)
    yield from (marker, states)


def _dropped(known: Sequence[Status]) -> Metric:
    family = CounterMetricFamily(
        "penstock_source_dropped_rows",
        "Rows of the source that this rule dropped, or that this sink left out as unrouted.",
        labels=["pipeline", "source", "rule"],
    )
    for status in known:
        for source, rules in status.dropped.items():
            for rule, rows in rules.items():
                family.add_metric([status.pipeline, source, rule], rows)
    return family


def _lag(known: Sequence[Status]) -> Iterator[Metric]:
    labels = ["pipeline", "source", "input"]
    records = GaugeMetricFamily(
        "penstock_source_lag_records", "Records of this topic, journal or table that are not decided yet.", labels=labels
    )
    behind = GaugeMetricFamily("penstock_source_lag_seconds", "Age of the oldest record that is not decided yet.", labels=labels)
    loss = GaugeMetricFamily(
        "penstock_source_seconds_to_loss",
        "Seconds until a record of this topic or stream that is not decided may be removed, or a batch of this table forgotten.",
        labels=labels,
    )
    lost = GaugeMetricFamily(
        "penstock_source_lost_records",
        "Records of this topic, journal or table that are gone and were never decided; 1 for a stream of Kinesis that lost any.",
        labels=labels,
    )
    for status in known:
        lags: tuple[TopicLag | JournalLag | TableLag, ...] = (*status.lag, *status.journals, *status.tables)
        for lag in lags:
            names = [status.pipeline, lag.source, _input_of(lag)]
            records.add_metric(names, lag.records)
            behind.add_metric(names, (lag.behind_ms or 0) / 1000)
            lost.add_metric(names, lag.lost)
            if not isinstance(lag, JournalLag) and lag.loss_in_ms is not None:
                loss.add_metric(names, lag.loss_in_ms / 1000)
        for stream in status.streams:  # Kinesis counts no records
            names = [status.pipeline, stream.source, stream.stream]
            behind.add_metric(names, (stream.behind_ms or 0) / 1000)
            lost.add_metric(names, int(stream.gap is not None))
            if stream.loss_in_ms is not None:
                loss.add_metric(names, stream.loss_in_ms / 1000)
    yield from (records, behind, loss, lost)


def _input_of(lag: TopicLag | JournalLag | TableLag) -> str:
    if isinstance(lag, TableLag):
        return lag.table
    return lag.topic if isinstance(lag, TopicLag) else lag.journal


def _waiting(known: Sequence[Status]) -> Iterator[Metric]:
    labels = ["pipeline", "source"]
    files = GaugeMetricFamily("penstock_source_waiting_files", "Files of this source that no batch has planned.", labels=labels)
    size = GaugeMetricFamily("penstock_source_waiting_bytes", "Bytes of these files.", labels=labels)
    oldest = GaugeMetricFamily(
        "penstock_source_oldest_waiting_timestamp_seconds",
        "When the oldest of these files was modified, in Unix time.",
        labels=labels,
    )
    for status in known:
        for waiting in status.waiting:
            names = [status.pipeline, waiting.source]
            files.add_metric(names, waiting.files)
            size.add_metric(names, waiting.size_bytes)
            if waiting.oldest_ms is not None:
                oldest.add_metric(names, waiting.oldest_ms / 1000)
    unknown = _per_pipeline(
        known,
        "penstock_source_lag_unknown",
        "Number of sources that did not tell what waits: of Kafka and tables one each, of journals all as one.",
        lambda status: len(status.lag_unknown),
    )
    uncounted = _per_pipeline(
        known,
        "penstock_source_uncounted",
        "Number of file sources whose files are not counted, such as those in a store.",
        lambda status: len(status.waiting_unknown),
    )
    yield from (files, size, oldest, unknown, uncounted)


def _state(known: Sequence[Status]) -> Iterator[Metric]:
    labels = ["pipeline", "operator", "name"]
    rows = GaugeMetricFamily("penstock_state_rows", "Rows that this stateful operator keeps.", labels=labels)
    memory = GaugeMetricFamily("penstock_state_memory_bytes", "Memory that its state takes, of all executors.", labels=labels)
    disk = GaugeMetricFamily("penstock_state_disk_bytes", "Size of its tables of RocksDB, of all executors.", labels=labels)
    limit = GaugeMetricFamily("penstock_state_limit_bytes", "What `state_limits` gives the state.", labels=["pipeline", "of"])
    left = GaugeMetricFamily(
        "penstock_state_seconds_to_limit",
        "Seconds until the state reaches that limit, 0 beyond it; absent while it does not grow, or for want of measurements.",
        labels=["pipeline", "of"],
    )
    for status in known:
        if status.state is None:
            continue
        for operator in status.state.operators:
            names = [status.pipeline, str(operator.operator_id), operator.name]
            rows.add_metric(names, operator.rows)
            memory.add_metric(names, operator.memory_bytes)
            if operator.disk_bytes is not None:
                disk.add_metric(names, operator.disk_bytes)
        for forecast in status.state.forecasts:
            limit.add_metric([status.pipeline, forecast.of], forecast.limit_bytes)
            if forecast.is_known:
                left.add_metric([status.pipeline, forecast.of], (forecast.reached_in_ms or 0) / 1000)
    yield from (rows, memory, disk, limit, left)
