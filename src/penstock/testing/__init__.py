"""Test tools for Penstock itself, and for people who write sinks or run pipelines.

`from penstock.testing import OwnSinkContract, OwnSinkRig` is how a user-written sink is tested (docs/howto/own_sink.md);
`penstock.testing.conformance` documents the suite. It needs pytest, which is imported with the first of these names.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.testing.conformance import (
        CrashContract,
        OwnSinkContract,
        OwnSinkRig,
        Row,
        SinkContract,
        SinkRig,
        StagingLossContract,
    )

__all__ = ["CrashContract", "OwnSinkContract", "OwnSinkRig", "Row", "SinkContract", "SinkRig", "StagingLossContract"]


def __getattr__(name: str) -> object:
    """Import the public names of the conformance suite on first use."""
    if name not in __all__:
        raise AttributeError(f"module 'penstock.testing' has no attribute {name!r}")
    return getattr(import_module("penstock.testing.conformance"), name)
