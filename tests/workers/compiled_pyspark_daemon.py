"""PySpark's daemon of Python workers, imported from where PySpark is installed, with its compiled code.

Spark puts a zip file with the same modules first on the path, which each daemon and each worker would compile anew: most of the
time of those that run a few rows. What their tasks import is imported here once, before workers are forked. Of no package, so
that it is found beside whichever product the workers import.
"""

import gc
import os
import sys
from contextlib import suppress
from importlib import import_module

sys.path[:] = [path for path in sys.path if os.path.basename(path) != "pyspark.zip"]

from pyspark.daemon import manager  # noqa: E402 - from another path than before

for name in ("pyarrow.parquet", "penstock.stage.staging"):
    with suppress(ImportError):  # workers shall miss it as they do without this
        import_module(name)
gc.collect()
gc.freeze()  # so that no worker copies its pages only to look for garbage

if __name__ == "__main__":
    manager()
