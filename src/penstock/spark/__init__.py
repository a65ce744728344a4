"""Readers of Spark's schemas, column names and error texts, and its session's settings for a while. No pyspark needed."""
