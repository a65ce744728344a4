"""The file system connector that Spark lacks for a URL, recognised in Spark's error text. Works without pyspark."""

import re
from importlib.util import find_spec
from pathlib import Path

_LACKS = re.compile(r"Class org\.apache\.hadoop\.fs\.(s3a|gs|azurebfs)\.[\w.$]+ not found|No FileSystem for scheme \"?(\w+)")
_AWS = "org.apache.hadoop:hadoop-aws:{hadoop}"
_BY_CLASS = {"s3a": _AWS, "gs": "org.apache.hadoop:hadoop-gcp:{hadoop}", "azurebfs": "org.apache.hadoop:hadoop-azure:{hadoop}"}
"""Hadoop's own connectors: Hadoop names their classes whether they are installed or not."""
_BY_SCHEME = {"s3": _AWS, "s3n": _AWS, "gs": "com.google.cloud.bigdataoss:gcs-connector:VERSION"}
_LIBRARY = re.compile(r"hadoop-client-api-(.+)\.jar")


def connector_remedy(text: str) -> str | None:
    """Return how to give Spark the connector that `text`, an exception of Spark's, reports missing; None if it reports none."""
    found = _LACKS.search(text)
    package = None if found is None else _BY_CLASS.get(found[1]) or _BY_SCHEME.get(found[2])
    if found is None or package is None:
        return None
    spelled = f"Write s3a:// for {found[2]}://, and give" if found[2] in {"s3", "s3n"} else "Give"
    given = f"spark: {{packages: [{package.format(hadoop=_hadoop_version())}]}}"
    return f"{spelled} Spark its connector, `{given}` in the pipeline file, and its credentials below `conf`."


def _hadoop_version() -> str:
    """Return the version of the Hadoop bundled with Spark here, which connectors must match."""
    spark = find_spec("pyspark")
    jars = Path(spark.origin).parent / "jars" if spark is not None and spark.origin is not None else Path()
    versions = [found[1] for jar in jars.glob("hadoop-client-api-*.jar") if (found := _LIBRARY.fullmatch(jar.name))]
    return versions[0] if versions else "VERSION"
