"""The receiver: takes events by HTTP and TCP, makes them durable in a journal, and only then acknowledges them."""
