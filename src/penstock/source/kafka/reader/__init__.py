"""Penstock's own Kafka reader, for where Spark's connector cannot be had: a Python data source over librdkafka."""
