"""Describes lag and time to loss for people."""

from penstock.source.kafka.lag import TopicLag

_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))


def span(milliseconds: int) -> str:
    """Return a rough duration, in the largest unit of which there are two or more."""
    size, unit = next(((size, unit) for size, unit in _UNITS if milliseconds >= 2 * size), _UNITS[-1])
    return f"{milliseconds / size:.0f} {unit}"


def describe_lag(lag: TopicLag) -> str:
    """Describe the lag of one topic in a sentence."""
    if lag.gaps:
        return f"topic {lag.topic}: {_gap(lag)}"
    if lag.records == 0:
        return f"topic {lag.topic}: everything is delivered"
    behind = "" if lag.behind_ms is None else f", the oldest written {span(lag.behind_ms)} ago"
    return f"topic {lag.topic}: {lag.records:,} records behind{behind}; {time_left(lag)}"


def time_left(lag: TopicLag) -> str:
    """Describe how long Kafka still keeps what is to be read next."""
    if lag.loss_in_ms is None:
        return "nothing is removed by age" if lag.retention_ms is None else "none is waiting to be removed"
    if lag.loss_in_ms <= 0:
        return "Kafka may remove it at any moment"
    return f"Kafka may remove it in {span(lag.loss_in_ms)}"


def _gap(lag: TopicLag) -> str:
    if lag.topic_id is None:
        return "it does not exist any more"
    return f"{lag.lost:,} records that were not delivered are gone, or the topic is another one of that name"
