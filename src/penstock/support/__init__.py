"""What has nothing to do with delivery: secrets, private files, error transport, connections, terminal text."""
