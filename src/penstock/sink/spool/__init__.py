"""The spool: staging for sinks that cannot hold data invisibly themselves.

A task attempt writes its rows into one **piece**: one line of JSON that names the format, its version and the attempt, then an
Arrow stream with compressed buffers. A small piece travels **inline** in its `Staged` message, and nothing is written to disk. A
larger one is a file `<spool>/<pipeline>/<sink>/<attempt>.arrow`, synced with its directory, or an object of that name on a store.
The attempt reports an object only after it has seen it there. `Staged.ref` holds the SHA-256 of all bytes, which is verified
before the first row is read back. The decision freezes the pieces, so publishing again sends identical rows in identical order:
pieces as decided, rows as written.

A file is removed by its sink after the rows are durable in the target, or by the sweep when its attempt can never be decided.
"""

from penstock.sink.spool.root import SpoolRoot
from penstock.sink.spool.spool import Spool, SpooledSink, spool_in_task
from penstock.sink.spool.writer import INLINE_LIMIT_BYTES, RowCheck, SpoolStager

__all__ = ["INLINE_LIMIT_BYTES", "RowCheck", "Spool", "SpoolRoot", "SpoolStager", "SpooledSink", "spool_in_task"]
