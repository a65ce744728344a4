"""Metrics of a receiver and its journal at `/metrics`, by the conventions of Prometheus, and `/livez` and `/readyz` for probes.

Needs the extra `metrics`. Labels are names of readers only.
"""

import asyncio
from collections.abc import Iterable, Iterator
from pathlib import Path

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from penstock.errors import PenstockError
from penstock.journal.group import GroupWriter
from penstock.journal.inspection import JournalFacts, inspect_journal
from penstock.journal.storage import Storage
from penstock.receive.http_server import GuardedServer
from penstock.spec.receive import ReceiverMetrics

_LARGEST_REQUEST = 1_024
_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class ReceiverCollector(Collector):
    """Looks at journal and writer whenever it is scraped. A journal that cannot be read has `penstock_receiver_up` 0."""

    def __init__(self, writer: GroupWriter, storage: Storage, home: Path) -> None:
        self._writer, self._storage, self._home = writer, storage, home

    def collect(self) -> Iterator[Metric]:
        """Return the metrics of this moment."""
        counts = self._writer.counts
        yield _counter("penstock_receiver_events", "Events that were answered since the start, repeats too.", counts.events)
        yield _counter("penstock_receiver_groups", "Groups of events that shared an fsync.", counts.groups)
        yield _counter("penstock_receiver_refused_events", "Events that were refused since the receiver started.", counts.refused)
        yield _gauge("penstock_receiver_waiting_bytes", "Bytes of events that wait for the disk.", counts.waiting_bytes)
        found, free_bytes = self._looked()
        is_up = found is not None and self._writer.failure is None
        yield _gauge("penstock_receiver_up", "Whether the receiver takes events, and its journal can be read.", int(is_up))
        if found is not None:
            yield from _of_journal(found)
            yield _gauge("penstock_journal_disk_free_bytes", "Bytes free on the journal's disk.", free_bytes)

    def describe(self) -> Iterable[Metric]:
        """Return nothing, so that registering does not look at anything."""
        return ()

    def _looked(self) -> tuple[JournalFacts | None, int]:
        try:
            return inspect_journal(self._storage, self._home), self._storage.free_bytes(self._home)
        except (PenstockError, OSError):
            return None, 0


def _of_journal(found: JournalFacts) -> Iterator[Metric]:
    yield _gauge("penstock_journal_size_bytes", "Bytes of the journal's segments.", found.size_bytes)
    yield _gauge("penstock_journal_segments", "Segments of the journal.", len(found.segments))
    yield _gauge("penstock_journal_first_sequence", "Number of the oldest event that is there.", found.first or 0)
    yield _gauge("penstock_journal_next_sequence", "Number that the next event gets.", found.next or 0)
    waiting = GaugeMetricFamily("penstock_journal_reader_waiting_events", "Events that a reader needs yet.", labels=["reader"])
    for reader in found.readers:
        waiting.add_metric([reader.reader], reader.waiting)
    yield waiting


def _counter(name: str, description: str, value: int) -> Metric:
    family = CounterMetricFamily(name, description)
    family.add_metric([], value)
    return family


def _gauge(name: str, description: str, value: int) -> Metric:
    return GaugeMetricFamily(name, description, value=value)


class MetricsListener(GuardedServer):
    """Listens while it is started."""

    def __init__(self, settings: ReceiverMetrics, writer: GroupWriter, storage: Storage, home: Path) -> None:
        self._writer = writer
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(ReceiverCollector(writer, storage, home))
        metrics, live, ready = self.guarded(self._metrics), self._live, self._ready
        routes = [web.get("/metrics", metrics), web.get("/livez", live), web.get("/readyz", ready)]
        super().__init__(settings, routes, largest_body=_LARGEST_REQUEST)

    async def _metrics(self, _: web.Request) -> web.Response:
        text = await asyncio.to_thread(generate_latest, self._registry)
        return web.Response(body=text, headers={"Content-Type": _CONTENT_TYPE})

    async def _live(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _ready(self, _: web.Request) -> web.Response:
        failure = self._writer.failure
        if failure is not None:
            return web.Response(status=503, text=f"{failure.message}\n")
        return web.Response(text="ok\n")
