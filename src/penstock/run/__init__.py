"""Putting a pipeline together and running it on Spark."""
