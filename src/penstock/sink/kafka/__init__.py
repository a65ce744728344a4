"""Delivery into Kafka topics: each lane of a batch commits its rows and its marker in one transaction."""
