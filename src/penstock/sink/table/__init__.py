"""The parts that all sinks into database tables share: marker, publication, verification, and nested values as JSON."""
