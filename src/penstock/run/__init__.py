"""Assembly of a pipeline, its execution on Spark, and the commands that operate it."""
