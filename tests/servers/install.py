"""`python -m tests.servers.install [NAME …]`: fetches and builds the servers that the tests start, and Spark's connectors.

`make servers` calls it.
"""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from tests.servers import KINDS, chromium, connectors, duckdb_readers, prometheus
from tests.servers.server import NotInstalledError, installing

INSTALLED = {**KINDS, "chromium": chromium, "connectors": connectors, "duckdb_readers": duckdb_readers, "prometheus": prometheus}


def main(names: list[str]) -> int:
    """Install all, or those named; says what is missing on this machine."""
    chosen = names or sorted(INSTALLED)
    with installing(), ThreadPoolExecutor() as pool:
        said = list(pool.map(_install, chosen))
    print("\n".join(said))
    return 0 if all(line.endswith("ready") for line in said) else 1


def _install(name: str) -> str:
    try:
        INSTALLED[name].install()
    except (NotInstalledError, OSError, subprocess.CalledProcessError) as trouble:
        return f"{name}: {trouble}"
    return f"{name}: ready"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
