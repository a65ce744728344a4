"""Jars that Maven fetches for servers and for Spark."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.servers.server import NotInstalledError

ALONE = ("*:*",)
"""Excludes every jar that a jar asks for."""


def fetch(into: Path, coordinates: Sequence[tuple[str, Sequence[str]]]) -> None:
    """Fetch jars and what they ask for into the directory `into`.

    Each is `group:artifact:version`, with `:classifier` where it has one, and the `group:artifact` that it shall not bring.
    Raises NotInstalledError.
    """
    maven = shutil.which("mvn")
    if maven is None or shutil.which("java") is None:
        raise NotInstalledError(f"{into.name} is fetched by Maven and runs on Java, and mvn or java is not on PATH")
    wanted = "".join(_dependency(*one) for one in coordinates)
    project = f"<modelVersion>4.0.0</modelVersion><groupId>test</groupId><artifactId>{into.name}</artifactId><version>1</version>"
    into.parent.mkdir(parents=True, exist_ok=True)
    pom = into.with_suffix(".xml")
    pom.write_text(f'<project xmlns="http://maven.apache.org/POM/4.0.0">{project}<dependencies>{wanted}</dependencies></project>')
    copy = ["-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={into}"]
    subprocess.run([maven, "-f", str(pom), *copy], check=True)


def _dependency(coordinate: str, excluded: Sequence[str]) -> str:
    group, artifact, version, *classifier = coordinate.split(":")
    named = f"<groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>"
    named += "".join(f"<classifier>{one}</classifier>" for one in classifier)
    pairs = [one.split(":") for one in excluded]
    without = "".join(f"<exclusion><groupId>{one}</groupId><artifactId>{name}</artifactId></exclusion>" for one, name in pairs)
    return f"<dependency>{named}<exclusions>{without}</exclusions></dependency>"
