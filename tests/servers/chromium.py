"""Chromium without a window, and axe, which looks at a page as people who cannot see or use a mouse meet it."""

import html
import json
import re
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from tests.servers.server import HOME, START_S, NotInstalledError
from tests.servers.system import install_packages

AXE = "axe-core@4"
_SCRIPT = HOME / "axe" / "axe.min.js"
_OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)
_ASK = """
axe.run().then(found => {
  const told = document.createElement("pre");
  told.id = "told";
  told.textContent = JSON.stringify({passes: found.passes.length, fits: document.documentElement.scrollWidth <= innerWidth,
    violations: found.violations.map(one => one.id + ": " + one.nodes.map(node => node.html.slice(0, 200)).join(" | "))});
  document.body.append(told);
});
"""


def install() -> None:
    """Install the package of Debian, and take axe out of that of npm."""
    if shutil.which("chromium") is None:
        install_packages("Chromium", ["chromium", "fonts-dejavu-core"])
    if not _SCRIPT.exists():
        _fetch_axe()


def _fetch_axe() -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise NotInstalledError("axe is fetched by npm, and npm is not on PATH")
    with tempfile.TemporaryDirectory(dir=HOME) as directory:
        subprocess.run([npm, "pack", "--silent", AXE], cwd=directory, check=True, stdout=subprocess.DEVNULL)
        (package,) = Path(directory).glob("*.tgz")
        with tarfile.open(package) as archive:
            script = archive.extractfile("package/axe.min.js")
            assert script is not None
            _SCRIPT.parent.mkdir(exist_ok=True)
            _SCRIPT.write_bytes(script.read())


def _program() -> str:
    found = shutil.which("chromium")
    if found is None or not _SCRIPT.exists():
        raise NotInstalledError("Chromium or axe is not there: run `make servers`")
    return found


def opened(page: Path, *options: str) -> tuple[str, str]:
    """The document of a page once its scripts are through, and what the browser's console said. Raises NotInstalledError."""
    with tempfile.TemporaryDirectory() as profile:
        command = [_program(), *_OPTIONS, f"--user-data-dir={profile}", "--enable-logging=stderr", *options]
        command += ["--virtual-time-budget=60000", "--dump-dom", page.as_uri()]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=START_S, check=True)
    return ended.stdout, "\n".join(line for line in ended.stderr.splitlines() if "CONSOLE" in line)


def pictured(page: Path, picture: Path, *, width: int, height: int) -> None:
    """Write a picture (PNG) of the page in a window of that size."""
    with tempfile.TemporaryDirectory() as profile:
        command = [_program(), *_OPTIONS, f"--user-data-dir={profile}", "--hide-scrollbars", f"--window-size={width},{height}"]
        command += [f"--screenshot={picture}", page.as_uri()]
        subprocess.run(command, capture_output=True, timeout=START_S, check=True)


def looked_at(page: str, directory: Path, *, width: int, dark: bool) -> dict[str, Any]:
    """What axe finds in a page: its policy must let a script in for that. `dark`: as people see it who asked for a dark one."""
    if dark:
        assert page.count("(prefers-color-scheme: dark)") == 1
        page = page.replace("(prefers-color-scheme: dark)", "all")
    page = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page)
    script = "".join(f"<script>{text}</script>" for text in (_read_script(), _ASK))
    file = directory / f"axe-{width}-{dark}.html"
    file.write_text(page.replace("</body>", f"{script}</body>"), encoding="utf-8")
    document, _ = opened(file, f"--window-size={width},900")
    [told] = re.findall(r'<pre id="told">(.*?)</pre>', document, re.DOTALL)
    found: dict[str, Any] = json.loads(html.unescape(told))
    return found


def _read_script() -> str:
    _program()
    return _SCRIPT.read_text(encoding="utf-8").replace("</script", "<\\/script")
