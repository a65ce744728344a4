"""Delivery into a table of Amazon Redshift: exactly once, by one transaction for rows and marker.

The sink is in `penstock.sink.redshift.sink` and not imported here: tasks check rows without a client of Redshift.
"""
