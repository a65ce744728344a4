"""`python -m penstock.testing.simulator`: its command line, if what it needs is installed."""

import sys
from importlib.util import find_spec

from penstock.errors import DependencyMissing


def main() -> int:
    """As `command.main`; 1 where the package for it is missing."""
    if find_spec("greenlet") is None:
        missing = DependencyMissing(
            "The simulator needs the package greenlet, which is not installed.", remedy="pip install 'penstock[testing]'."
        )
        sys.stderr.write(f"{missing}\n")
        return missing.exit_code
    from penstock.testing.simulator import command  # noqa: PLC0415 - only when it can be loaded

    return command.main()


if __name__ == "__main__":
    sys.exit(main())
