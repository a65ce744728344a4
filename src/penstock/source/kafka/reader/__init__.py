"""Penstock's own reader of Kafka, for where no jar of Spark's connector can be had: a Python data source over librdkafka."""
