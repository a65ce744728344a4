"""Readers of Spark's schemas, column names and error texts. No pyspark needed."""
