"""Settings of a Spark session for the duration of one action."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

SOURCE_EVOLUTION = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
"""Spark's setting by which it demands names of sources, and keeps their offsets by name."""


@contextmanager
def applied(session: Any, settings: Mapping[str, str]) -> Iterator[None]:
    """Set `settings` in `session`, a SparkSession; afterwards restore the user's values."""
    before: dict[str, str | None] = {key: session.conf.get(key, None) for key in settings}
    try:
        for key, value in settings.items():
            session.conf.set(key, value)
        yield
    finally:
        for key, old in before.items():
            if old is None:
                session.conf.unset(key)
            else:
                session.conf.set(key, old)
