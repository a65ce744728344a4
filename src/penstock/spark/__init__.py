"""Spark's schemas, column names and error texts, read without pyspark."""
