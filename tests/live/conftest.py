"""Directories are in memory in this layer: where it waits, it waits for servers."""

from tests.memory import tmp_path

__all__ = ["tmp_path"]
