"""Accounts that are directories: on this machine, or mounted at the same path on the driver and on every executor.

Staged files lie outside of the table's root on the same file system, so that no listing of the table shows them. Publishing is
one `rename` that refuses to replace. It consumes the staged file and shows it in one step, so it cannot happen twice, however
late a stopped driver goes on. Where a file system cannot do that, a hard link is made and the staged name removed.
"""

from penstock.sink.parquet.directory.account import DirectoryAccount, directory_account

__all__ = ["DirectoryAccount", "directory_account"]
