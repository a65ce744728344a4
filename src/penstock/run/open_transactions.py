"""Open transactions that keep readers of a pipeline's topics waiting: found for `penstock doctor`, and ended on request."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from penstock.core.model import Finding, SourceName
from penstock.core.open_transaction import OpenTransaction
from penstock.errors import PenstockError, Usage
from penstock.protocols import Ledger, ListsOpenTransactions, Sink
from penstock.run.assembly import DeliveryPlan, sinks_of
from penstock.run.kafka_input import known_topics
from penstock.run.kafka_lag import topics_named
from penstock.run.operations import opened_ledger
from penstock.source.kafka.options import client_options
from penstock.source.kafka.watch import kafka_sources
from penstock.spec.source import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Transactions:
    """All open transactions, the oldest first, and the places that could not be asked."""

    open: tuple[OpenTransaction, ...]
    findings: tuple[Finding, ...]


def transactions_of(plan: DeliveryPlan, *, sinks: Sequence[Sink], ledger: Ledger) -> Transactions:
    """Return the open transactions on topics of sources and `sinks`, which may be closed. Costs some requests for each place."""
    found, silent = list[OpenTransaction](), list[Finding]()
    for subject, place in _places(plan, sinks, ledger).items():
        try:
            found += place.open_transactions()
        except PenstockError as error:
            silent.append(Finding(subject=subject, ok=True, warns=True, message=str(error)))
    unique = {(one.topic, one.partition, one.producer_id): one for one in found}.values()
    return Transactions(open=tuple(sorted(unique, key=lambda one: -one.open_ms)), findings=tuple(silent))


def end_transaction(plan: DeliveryPlan, name: str) -> Sequence[OpenTransaction]:
    """End the transaction that `transactions_of` calls `name`, and return where it was open. Raises Usage without one, Failed."""
    with opened_ledger(plan) as ledger:
        sinks = sinks_of(plan)
        for sink in sinks:
            sink.close()
        places = _places(plan, sinks, ledger)
    for place in places.values():
        found = [one for one in place.open_transactions() if one.name == name]
        if found:
            place.end_transaction(found[0])
            return found
    raise Usage(f"No transaction {name!r} is open on the topics of {plan.pipeline!r}.", remedy="`penstock doctor` lists them.")


def _places(plan: DeliveryPlan, sinks: Sequence[Sink], ledger: Ledger) -> Mapping[str, ListsOpenTransactions]:
    written = {f"sink {sink.name}": sink for sink in sinks if isinstance(sink, ListsOpenTransactions)}
    return {**written, **dict(_sources(plan, ledger))}


def _sources(plan: DeliveryPlan, ledger: Ledger) -> Iterator[tuple[str, ListsOpenTransactions]]:
    sources = dict(kafka_sources(plan.settings))
    tail = ledger.tail() if sources else None
    read = () if tail is None else known_topics(ledger, tail.summary)
    for name, source in sources.items():
        topics = [topic.topic for topic in read if topic.source == name]
        yield f"source {name}", _Source(name, source, [*topics, *topics_named(source)])


class _Source:
    """The topics that a source reads: an open transaction there holds up the pipeline itself."""

    def __init__(self, name: SourceName, source: Source, topics: Sequence[str]) -> None:
        self._name = name
        self._source = source
        self._topics = topics

    def open_transactions(self) -> Sequence[OpenTransaction]:
        from penstock.kafka.transactions import open_transactions

        return open_transactions(client_options(self._name, self._source), self._topics)

    def end_transaction(self, one: OpenTransaction) -> None:
        from penstock.kafka.transactions import end_transaction

        end_transaction(client_options(self._name, self._source), one)
