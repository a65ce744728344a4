"""Client of schema registries that speak Confluent's protocol, and decoding and encoding of values, change events among them."""
