"""The registry of parts: to add one, write a module with `measure(bench)` and one line here."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from bench import (
    databases,
    digests,
    failover,
    kafka,
    kafka_reader,
    kafka_waiting,
    lanes,
    ledger,
    passes,
    push,
    restart,
    savepoints,
    selections,
    shapes,
    simulator,
    stores,
    table_commits,
    tables,
    tax,
    verifying,
)
from bench.measuring import Bench
from bench.result import Table


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part of the page, measured by itself. `minutes` on two cores; `jdbc` and `kafka` say which jars Spark needs.

    `small_batches`: Spark's own logs would take most of a batch's time; see `bench.session.write_checkpoints`.
    `cores`: how many tasks Spark runs at a time. `notices`: a row that is changed on its way fails the measurement.
    """

    measure: Callable[[Bench], Iterator[Table]]
    minutes: float
    servers: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    jdbc: bool = False
    kafka: bool = False
    small_batches: bool = False
    cores: int = 2
    notices: bool = True


PARTS = {
    "ledger": Part(measure=ledger.measure, minutes=3),
    "simulator": Part(measure=simulator.measure, minutes=0.5, notices=False),
    "restart": Part(measure=restart.measure, minutes=3.5),
    "failover": Part(measure=failover.measure, minutes=15, notices=False),
    "tax": Part(measure=tax.measure, minutes=4),
    "passes": Part(measure=passes.measure, minutes=5),
    "shapes": Part(measure=shapes.measure, minutes=5),
    "selections": Part(measure=selections.measure, minutes=3),
    "digests": Part(measure=digests.measure, minutes=2),
    "savepoint": Part(measure=savepoints.measure, minutes=11),
    "tables": Part(measure=tables.measure, minutes=3, libraries=("deltalake", "pyiceberg")),
    "table_commits": Part(measure=table_commits.measure, minutes=25, libraries=("deltalake", "pyiceberg")),
    "verify": Part(measure=verifying.measure, minutes=2, libraries=("duckdb",)),
    "stores": Part(measure=stores.measure, minutes=6, servers=("s3", "az", "gs", "hdfs")),
    **{
        kind: Part(measure=partial(databases.measure, kind=kind), minutes=minutes, servers=(kind,), jdbc=True, small_batches=True)
        for kind, minutes in (("postgres", 4), ("mysql", 4), ("cassandra", 3))
    },
    "kafka": Part(measure=kafka.measure, minutes=4, servers=("kafka",), kafka=True, small_batches=True),
    "lanes": Part(measure=lanes.measure, minutes=4, servers=("kafka",), kafka=True, small_batches=True, cores=max(lanes.LANES)),
    "kafka_reader": Part(measure=kafka_reader.measure, minutes=3, servers=("kafka",), kafka=True, small_batches=True),
    "kafka_waiting": Part(measure=kafka_waiting.measure, minutes=8, servers=("kafka",), kafka=True, small_batches=True),
    "push": Part(measure=push.measure, minutes=6, servers=("kafka",)),
}
