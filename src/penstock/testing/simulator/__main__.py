"""Entry point of `python -m penstock.testing.simulator`, which requires greenlet."""

import sys
from importlib.util import find_spec

from penstock.errors import DependencyMissing
from penstock.support.extras import install_command


def main() -> int:
    """Run `command.main`. Return the exit code of DependencyMissing if greenlet is not installed."""
    if find_spec("greenlet") is None:
        missing = DependencyMissing(
            "The simulator needs the package greenlet, which is not installed.",
            remedy=f"Install it: {install_command('testing')}",
        )
        sys.stderr.write(f"{missing}\n")
        return missing.exit_code
    from penstock.testing.simulator import command  # noqa: PLC0415 - only when it can be loaded

    return command.main()


if __name__ == "__main__":
    sys.exit(main())
