"""Helpers that know nothing of delivery: secrets, private files, error transport, connections, terminal text."""
