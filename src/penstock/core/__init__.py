"""The protocol's nouns, its durable formats, row hashes and fault points. No I/O."""
