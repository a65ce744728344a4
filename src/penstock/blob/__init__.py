"""Object stores and HDFS behind one small interface. Each client library is imported by its own module only.

A store keeps whole objects under keys below one root, and **uploads** in parts that nobody sees until they are completed. What an
operation did is never concluded from its status code where it matters: callers `look` and compare the tag.
"""

from penstock.blob.expiry import Expiry, expiry_finding
from penstock.blob.open import open_store
from penstock.blob.store import BlobStore, Found, Pending, RequestsEach

__all__ = ["BlobStore", "Expiry", "Found", "Pending", "RequestsEach", "expiry_finding", "open_store"]
