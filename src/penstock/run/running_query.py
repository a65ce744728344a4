"""The id of the query that Spark runs a batch of: the only thing that tells it apart from the query of some checkpoint."""

from pyspark.sql import DataFrame

from penstock.core.model import QueryId

_QUERY_ID = "sql.streaming.queryId"


def running_query(rows: DataFrame) -> QueryId | None:
    """Return the query whose batch `rows` is. None where Spark does not say: on Spark Connect, or outside a query's thread."""
    context = getattr(rows.sparkSession, "sparkContext", None)
    found = None if context is None else context.getLocalProperty(_QUERY_ID)
    return None if found is None else QueryId(found)
