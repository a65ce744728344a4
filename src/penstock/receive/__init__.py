"""The receiver: takes events by HTTP, TCP and syslog, makes them durable in a journal, and only then acknowledges them."""
