"""What Spark of this process still does to checkpoints: queries that run, and the upkeep of state behind those that ran."""

import sys
from contextlib import suppress
from typing import Any


def active_query_ids() -> frozenset[str]:
    """Return the ids of the streaming queries that run in the session of this process. Starts no Spark."""
    session = _session()
    return frozenset() if session is None else frozenset(query.id for query in session.streams.active)


def end_upkeep_of_state() -> None:
    """Wait until no thread of this process writes state any more. Only while no query runs here.

    Called before a checkpoint is set back. Spark's maintenance goes on when a query has ended, and its snapshot of a batch that
    was taken back would stand for the batch that comes in its place. Spark begins it again with the next query.
    """
    session, java = _session(), sys.modules.get("py4j.protocol")
    if session is not None and java is not None:
        with suppress(java.Py4JError, AttributeError):  # a session that has ended, or is of Spark Connect, keeps no state here
            stores = getattr(session._jvm.org.apache.spark.sql.execution.streaming.state, "StateStore$")
            getattr(stores, "MODULE$").stop()


def _session() -> Any:
    pyspark = sys.modules.get("pyspark.sql")
    return None if pyspark is None else pyspark.SparkSession.getActiveSession()
