"""What the Kafka source and the Kafka sink share: login errors, open transactions, and connection strings of Event Hubs."""
