"""Schema registries that speak Confluent's protocol, and values in their wire format: looked up, decoded, typed."""
