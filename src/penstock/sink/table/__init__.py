"""What sinks into a table of a database have in common: marker, publication, verification, and values as JSON."""
