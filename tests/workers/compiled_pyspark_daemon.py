"""PySpark's daemon of Python workers, imported from where PySpark is installed, with its compiled code.

Spark puts a zip file with the same modules first on the path, which each daemon and each worker would compile anew: most of the
time of those that run a few rows. Of no package, so that it is found beside whichever product the workers import.
"""

import os
import sys

sys.path[:] = [path for path in sys.path if os.path.basename(path) != "pyspark.zip"]

from pyspark.daemon import manager  # noqa: E402 - from another path than before

if __name__ == "__main__":
    manager()
