"""Lets every Python that Spark starts import PySpark from where it is installed, with its compiled code.

Spark puts a zip file with the same modules first on the path, which each of these processes would compile anew: most of the time
of those that run a few rows.
"""

import os
import sys
from importlib.util import find_spec

_without = [path for path in sys.path if os.path.basename(path) != "pyspark.zip"]
_with, sys.path[:] = list(sys.path), _without
if find_spec("pyspark") is None:
    sys.path[:] = _with
