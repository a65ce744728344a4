"""Finds Spark's own Kafka connector for a session that Penstock starts, so that nobody has to name a jar.

Spark does not carry the connector's jar, and its version must be Spark's own. Spark is given the Maven coordinates, which it
fetches (`spark.jars.packages`), unless the jars lie in a directory on this machine.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from penstock.errors import DependencyMissing

ENVIRONMENT = "PENSTOCK_KAFKA_JARS"
"""Environment variable that names a directory with the connector's jars, for machines that reach no repository."""

CONNECTOR = "spark-sql-kafka-0-10"
_CORE = re.compile(r"spark-core_(\d+\.\d+)-(.+)\.jar")
_JAR = re.compile(rf"{CONNECTOR}_(\d+\.\d+)-(.+)\.jar")
_NEEDED = f"{CONNECTOR}, spark-token-provider-kafka-0-10, kafka-clients and commons-pool2"
JARS, PACKAGES = "spark.jars", "spark.jars.packages"


class PackageNotFound(DependencyMissing):
    """No Maven repository that answers provides a package, which another one may do once it is reached."""


class ConnectorMissing(PackageNotFound):
    """No Maven repository provides Spark's connector."""


def connector_settings(
    *, home: Path, conf: Mapping[str, str], submitted: str, environment: Mapping[str, str]
) -> Mapping[str, str]:
    """Return the setting that gives the Spark below `home` its connector; empty if something gives it already.

    `submitted`: the arguments for spark-submit. Raises DependencyMissing where the directory of `ENVIRONMENT` does not hold it.
    """
    configured = " ".join([submitted, *conf.values()])
    if CONNECTOR in configured or any((home / "jars").glob(f"{CONNECTOR}_*.jar")):
        return {}
    folder = environment.get(ENVIRONMENT)
    version = _version_of(home)
    if folder:
        return {JARS: ",".join(str(jar) for jar in _jars_in(Path(folder), scala=version and version[0]))}
    return {} if version is None else {PACKAGES: coordinate(*version)}


def coordinate(scala: str, spark: str) -> str:
    """Return the connector's Maven coordinates."""
    return f"org.apache.spark:{CONNECTOR}_{scala}:{spark}"


def _version_of(home: Path) -> tuple[str, str] | None:
    """Return the versions of Scala and of Spark, None if they cannot be found."""
    found = [named for jar in (home / "jars").glob("spark-core_*.jar") if (named := _CORE.fullmatch(jar.name))]
    return (found[0][1], found[0][2]) if found else None


def _jars_in(folder: Path, *, scala: str | None) -> list[Path]:
    jars = sorted(folder.resolve().glob("*.jar"))
    built = [named[1] for jar in jars if (named := _JAR.fullmatch(jar.name))]
    if not built:
        raise DependencyMissing(
            f"The directory {folder}, which {ENVIRONMENT} names, holds no {CONNECTOR}_….jar.",
            remedy=f"Put the jars of Spark's Kafka connector there ({_NEEDED}), or unset {ENVIRONMENT} to have Spark fetch them.",
        )
    if scala is not None and scala not in built:
        raise DependencyMissing(
            f"The Kafka connector in {folder} is built for Scala {built[0]}, but this Spark runs on Scala {scala}.",
            remedy=f"Put {CONNECTOR}_{scala} there, of the version of Spark.",
        )
    return jars


_UNRESOLVED = re.compile(r"unresolved dependency: ([\w.-]+)#([\w.-]+);([\w.-]+): not found")


def not_found(log: str) -> DependencyMissing | None:
    """Return the error for a session that did not start for want of a package, by Spark's log; None for any other reason."""
    found = _UNRESOLVED.search(log)
    if found is None:
        return None
    named = ":".join(found.groups())
    of_ours = found[2].startswith(CONNECTOR)
    other = (
        "Take Penstock's own reader, which needs none (`reader: python`, or `auto`). Or put the jars of Spark's Kafka connector "
        f"({_NEEDED}) into a directory and name it by {ENVIRONMENT}; or name another version of it by "
        f"`spark: {{packages: [org.apache.spark:{found[2]}:VERSION]}}`, as near to Spark's as there is."
    )
    kind = ConnectorMissing if of_ours else PackageNotFound
    return kind(
        f"No Maven repository that Spark asks from here has {named}, so Spark did not start.",
        remedy=other if of_ours else "Correct `spark: {packages: …}`, or name a repository by spark.jars.repositories in `conf`.",
    )
