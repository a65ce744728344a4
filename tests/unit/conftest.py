"""Directories are in memory in this layer: what it says of files it says of any file system, and it forces thousands to it."""

from tests.memory import tmp_path

__all__ = ["tmp_path"]
