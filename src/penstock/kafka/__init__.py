"""What sources and sinks of Kafka share: transactions that keep its readers waiting."""
