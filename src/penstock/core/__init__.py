"""Values of the protocol, their durable formats, row hashes and fault points. Only fault points do I/O."""
