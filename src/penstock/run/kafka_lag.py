"""How far a pipeline is behind its Kafka topics, measured from outside its driver, without Spark and without Java."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from penstock.core.model import Finding, SourceName, Summary
from penstock.core.topics import TopicRead
from penstock.errors import PenstockError
from penstock.protocols import Ledger
from penstock.run.kafka_input import known_topics
from penstock.source.kafka.lag import TopicLag, describe_lag, lag_of
from penstock.source.kafka.watch import brokers_of, kafka_sources
from penstock.spec.pipeline import DeliverySettings
from penstock.spec.source import Source
from penstock.support.secret import scrub

DELIVERED = "delivered offsets"
"""Subject of the finding that Kafka does not continue what was delivered, so that a start would be refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputLag:
    """The lag of every topic that was read, and the reason for each source that could not be asked."""

    topics: tuple[TopicLag, ...] = ()
    troubles: tuple[str, ...] = ()


def input_lag(settings: DeliverySettings, ledger: Ledger, *, now_ms: Callable[[], int]) -> InputLag:
    """Return the lag behind what the newest decision read. Costs some requests to the brokers for each topic."""
    tail = ledger.tail()
    reads = known_topics(ledger, Summary() if tail is None else tail.summary)
    topics, troubles = list[TopicLag](), list[str]()
    for name, source in kafka_sources(settings):
        try:
            topics += _of_source(name, source, reads, now_ms)
        except PenstockError as error:
            troubles.append(scrub(str(error)))
    return InputLag(topics=tuple(topics), troubles=tuple(troubles))


def input_findings(settings: DeliverySettings, ledger: Ledger, *, now_ms: Callable[[], int]) -> Iterator[Finding]:
    """Yield for `penstock check` whether Kafka answers, still has what is to be read next, and for how long."""
    found = input_lag(settings, ledger, now_ms=now_ms)
    for message in found.troubles:
        yield Finding(subject="kafka", ok=False, message=message)
    accepting = {name for name, source in kafka_sources(settings) if source.on_gap == "accept"}
    for lag in found.topics:
        subject = DELIVERED if lag.gaps else f"records of {lag.source}"
        fine = lag.source in accepting if lag.gaps else not lag.is_near_loss
        yield Finding(subject=subject, ok=fine, message=describe_lag(lag), warns=lag.gaps > 0)
    if not found.troubles and not found.topics:
        yield from _unread(settings)


def _unread(settings: DeliverySettings) -> Iterator[Finding]:
    """Yield, for a pipeline that has read nothing yet, whether the topics exist that its sources name."""
    for name, source in kafka_sources(settings):
        wanted = topics_named(source)
        try:
            missing = sorted(set(wanted) - brokers_of(name, source).topics(wanted).keys())
        except PenstockError as error:
            yield Finding(subject="kafka", ok=False, message=scrub(str(error)))
            continue
        message = (
            f"has no topic {', '.join(missing)}: create it, or correct the source {name}"
            if missing
            else "answers; nothing was read yet"
        )
        yield Finding(subject="kafka", ok=not missing, message=message)


def topics_named(source: Source) -> list[str]:
    """Return the topics that a source's settings name; none where they give a pattern or partitions."""
    for option, value in source.options.items():
        if option.lower() == "subscribe":
            return [name.strip() for name in value.split(",") if name.strip()]
    return []


def _of_source(name: SourceName, source: Source, reads: tuple[TopicRead, ...], now_ms: Callable[[], int]) -> Iterator[TopicLag]:
    brokers = brokers_of(name, source)
    for read in reads:
        if read.source == name:
            yield lag_of(read, brokers=brokers, now_ms=now_ms())
