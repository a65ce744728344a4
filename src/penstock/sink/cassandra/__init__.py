"""Delivery into a table of Cassandra: not transactional, but effectively once, by keyed writes that may be repeated."""
