"""Object stores and HDFS behind one small interface. Each client library is imported by its own module only.

A store holds whole objects under keys below one root, and **uploads** in parts that nobody sees until they are completed. Where
it matters, no outcome is concluded from a status code: callers read the object's tag with `head` and compare it.
"""

from penstock.blob.check import expiry_finding
from penstock.blob.store import BlobStore, Expiry, Found, Pending, RequestsEach, open_store

__all__ = ["BlobStore", "Expiry", "Found", "Pending", "RequestsEach", "expiry_finding", "open_store"]
