"""PySpark's daemon of Python workers, which imports what their tasks import once, before it forks them.

Of no package, so that it is found beside whichever product the workers import.
"""

import gc
from contextlib import suppress
from importlib import import_module

from pyspark.daemon import manager

for name in ("pyarrow.parquet", "penstock.stage.staging"):
    with suppress(ImportError):  # workers shall miss it as they do without this
        import_module(name)
gc.collect()
gc.freeze()  # so that no worker copies its pages only to look for garbage

if __name__ == "__main__":
    manager()
