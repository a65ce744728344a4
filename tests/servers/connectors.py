"""Spark's connectors to object stores, from Hadoop and from Google, and what they are told about the servers of these tests."""

from collections.abc import Mapping
from pathlib import Path

from tests.servers.az import ACCOUNT, KEY
from tests.servers.maven import ALONE, fetch
from tests.servers.server import HOME, NotInstalledError, Place

HADOOP, AWS = "3.5.0", "2.35.4"
"""Hadoop's version is that of the Hadoop in PySpark, and the SDK's the one that hadoop-aws of that version names."""
FOLDER = HOME / "connectors"
READY = FOLDER / f"{HADOOP}.ready"
_IN_SPARK = ("io.netty:*", "org.slf4j:*", "commons-codec:*", "commons-logging:*", "org.apache.httpcomponents:*")
_JARS = (
    (f"org.apache.hadoop:hadoop-aws:{HADOOP}", (*_IN_SPARK, "software.amazon.awssdk:bundle")),
    *((f"software.amazon.awssdk:{part}:{AWS}", _IN_SPARK) for part in ("s3", "s3-transfer-manager", "sts")),
    (f"org.apache.hadoop:hadoop-azure:{HADOOP}", _IN_SPARK),
    ("com.google.cloud.bigdataoss:gcs-connector:hadoop3-2.2.26:shaded", ALONE),
)
"""Of Amazon's SDK the parts that the connector uses: the whole of it is 650 MB. Hadoop's own connector for Google Cloud Storage
takes no other endpoint than Google's."""
_GOOGLE = "com.google.cloud.hadoop.fs.gcs"
_SIZES = {
    "block.size": 64,
    "inputstream.inplace.seek.limit": 8,
    "inputstream.min.range.request.size": 2,
    "outputstream.buffer.size": 8,
    "rewrite.max.chunk.size": 512,
}
"""In MiB: Google's connector does not understand how Hadoop's defaults for its own one are written."""


def install() -> None:
    """Fetch them, unless they are there."""
    if not READY.exists():
        fetch(FOLDER / "jars", _JARS)
        READY.touch()


def jars() -> list[Path]:
    """Those for `spark.jars`."""
    if not READY.exists():
        raise NotInstalledError("Spark's connectors to object stores are not there: run `make servers`")
    return sorted((FOLDER / "jars").glob("*.jar"))


def spelled(place: Place) -> str:
    """The place's URL as its connector knows it; the emulator of Azure answers without TLS."""
    kind, _, rest = place.url.partition("://")
    if kind == "az":
        return f"abfs://{rest}".replace(f"@{ACCOUNT}", f"@{ACCOUNT}.dfs.core.windows.net", 1)
    return f"{ {'s3': 's3a'}.get(kind, kind) }://{rest}"


def settings(place: Place) -> Mapping[str, str]:
    """What Hadoop's configuration needs for that place's server."""
    return _SETTINGS[place.url.partition("://")[0]](place.options)


def _s3(options: Mapping[str, str]) -> dict[str, str]:
    return {
        "fs.s3a.endpoint": options["endpoint"],
        "fs.s3a.endpoint.region": options["region"],
        "fs.s3a.path.style.access": "true",
        "fs.s3a.access.key": options["access_key_id"],
        "fs.s3a.secret.key": options["secret_access_key"],
    }


def _azure(options: Mapping[str, str]) -> dict[str, str]:
    return {
        "fs.azure.abfs.endpoint": options["endpoint"].split("/")[2],
        "fs.azure.always.use.https": "false",
        "fs.azure.networking.library": "JDK_HTTP_URL_CONNECTION",
        "fs.azure.account.hns.enabled": "false",
        "fs.azure.fns.account.service.type": "BLOB",
        "fs.azure.metrics.collection.enabled": "false",  # else Java sends them when it ends, to a server that has ended before
        **{f"fs.azure.account.key.{ACCOUNT}.{api}.core.windows.net": KEY for api in ("blob", "dfs")},
    }


def _google(options: Mapping[str, str]) -> dict[str, str]:
    return {
        "fs.gs.impl": f"{_GOOGLE}.GoogleHadoopFileSystem",
        "fs.AbstractFileSystem.gs.impl": f"{_GOOGLE}.GoogleHadoopFS",
        "fs.gs.storage.root.url": options["endpoint"],
        "fs.gs.project.id": options["project"],
        "fs.gs.auth.service.account.enable": "false",
        "fs.gs.auth.null.enable": "true",
        **{f"fs.gs.{name}": str(size << 20) for name, size in _SIZES.items()},
    }


_SETTINGS = {"s3": _s3, "az": _azure, "gs": _google}
