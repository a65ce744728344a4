"""Delivery into a Cassandra table without transactions: effectively once, by keyed writes that may be repeated."""
