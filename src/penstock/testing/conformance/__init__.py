"""The conformance suite: every sink of Penstock passes it, and a user-written sink can in a few lines.

    # test_my_sink.py
    from my_sink import MySink
    from penstock.testing import OwnSinkContract, OwnSinkRig

    class MyRig(OwnSinkRig):                    # must be importable: other processes unpickle it
        sink_type = MySink

        def options(self):
            return {"directory": str(self.directory / "target")}

        def damage(self, kind):                 # what `verify` must find: see DAMAGES
            ...

    class TestMySink(OwnSinkContract):          # with every fault point of `penstock.OwnSink`, and every kind of fault
        rig_type = MyRig

A sink that is not derived from `penstock.OwnSink` needs a rig with `make` and `read_back`, a fixture `rig` that returns it, and a
test class for each contract:

- `SinkContract` for every sink
- `IdentityContract` for every sink with a marker
- `CrashContract` for every sink whose target outlives the process
- `StagingLossContract` for every sink whose staging can be lost or damaged apart from the decision (`lose_staging` of the rig)
- `VerifyBesideDriverContract` for every sink that `verify` can read

Class attributes of rig and test class state where a sink promises less than the defaults: other columns, pieces that appear one
after the other, damages that the target does not allow. Upsert and replace define with `settle` what batches leave. Sinks that
write several pieces per attempt define with `unit_of` which row goes where. Sinks with accounts and a route need nothing: rows
are routed by id.

Contents are compared as multisets of rows, never as sets or counts. `Bench` plays the coordinator by hand, except for crashes:
there the real coordinator delivers over a real ledger, a process is killed at the armed point, and another one recovers.
"""

import pytest

pytest.register_assert_rewrite(
    *(f"{__name__}.{part}" for part in ("crashes", "contract", "identity", "publishing", "staging", "verifying"))
)

from penstock.testing.conformance.bench import Bench, Shown  # noqa: E402 - after the assertions are made to tell more
from penstock.testing.conformance.contract import OwnSinkContract, OwnSinkRig, SinkContract  # noqa: E402
from penstock.testing.conformance.crashes import CrashContract  # noqa: E402
from penstock.testing.conformance.identity import IdentityContract  # noqa: E402
from penstock.testing.conformance.publishing import StagingLossContract  # noqa: E402
from penstock.testing.conformance.rig import (  # noqa: E402
    DAMAGES,
    PIPELINE,
    SCHEMA,
    SWAPPED,
    Row,
    SinkRig,
    as_batch,
    content,
    make_rows,
    require_equal,
    swapped,
)
from penstock.testing.conformance.verifying import VerifyBesideDriverContract  # noqa: E402

__all__ = [
    "DAMAGES",
    "PIPELINE",
    "SCHEMA",
    "SWAPPED",
    "Bench",
    "CrashContract",
    "IdentityContract",
    "OwnSinkContract",
    "OwnSinkRig",
    "Row",
    "Shown",
    "SinkContract",
    "SinkRig",
    "StagingLossContract",
    "VerifyBesideDriverContract",
    "as_batch",
    "content",
    "make_rows",
    "require_equal",
    "swapped",
]
