"""Accounts on object stores and HDFS.

Tasks upload each file once, in parts that no listing shows. Publishing is the store's own completion of that upload. It consumes
the parts, so it cannot happen twice, however late a stopped driver goes on. Small files travel in the decision and are put whole.
"""

from penstock.sink.parquet.object.account import ObjectAccount, object_account

__all__ = ["ObjectAccount", "object_account"]
