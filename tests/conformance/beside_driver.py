"""How often `verify` looks beside a running driver: 100 times with PENSTOCK_SOAK_FAULTS=all, which `make soak` sets.

A run of CI draws one of these sinks by its seed, which looks 100 times, too. The others look less often: each look reads all
files of the table, or asks a server. Sinks that are not named here always look 100 times.
"""

import os
import random
from typing import Final

from tests.seed import SEED

from penstock.testing.conformance import VerifyBesideDriverContract

SINKS: Final = (
    *("parquet", "objects", "delta", "delta by key", "iceberg", "iceberg by key"),
    *("postgres", "redshift", "duckdb", "dbapi", "kafka", "cassandra"),
)
DRAWN: Final = random.Random(SEED).choice(SINKS)


def looks_of(sink: str, *, fewer: int) -> int:
    """How many looks the sink has in this run."""
    assert sink in SINKS, sink
    is_whole = sink == DRAWN or os.environ.get("PENSTOCK_SOAK_FAULTS") == "all"
    return VerifyBesideDriverContract.looks if is_whole else fewer
