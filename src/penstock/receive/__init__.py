"""The receiver: takes events by HTTP, TCP, syslog and MQTT, makes them durable in a journal, and only then acknowledges them."""
