"""Delivery into one table over any driver of Python's DB-API 2.0, ADBC's included: exactly once, by portable SQL."""
