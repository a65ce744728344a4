"""Kafka as a source: Spark's connector, what the broker has, and what is missing of it."""
