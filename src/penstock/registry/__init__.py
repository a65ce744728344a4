"""Client of schema registries that speak Confluent's protocol, and decoding and encoding of values in their wire format."""
