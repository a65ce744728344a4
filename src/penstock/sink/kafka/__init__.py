"""Delivery into topics of Kafka: rows and marker in one transaction for each lane of a batch."""
