"""The receiver: takes events by HTTP, TCP, syslog, MQTT and AMQP, makes them durable in a journal, then acknowledges them."""
