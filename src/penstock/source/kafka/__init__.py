"""Kafka as a source: Spark's connector or Penstock's own reader, what the brokers have, and what they no longer have."""
