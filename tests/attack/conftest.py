"""Directories in memory, as in `tests/conformance`. The rig runs whole: nothing of it is drawn."""

from tests.conformance.conftest import tmp_path

__all__ = ["tmp_path"]
