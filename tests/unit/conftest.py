"""Directories are in memory in this layer: what it says of files it says of any file system, and it forces thousands to it."""

from tests.killed import kills_raise
from tests.memory import tmp_path

__all__ = ["kills_raise", "tmp_path"]
