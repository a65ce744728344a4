"""Sends sample orders as JSON: `python generate.py [ORDERS]`.

The variables KAFKA and TOPIC name brokers and topic; without them it is `orders` at localhost:9092.
"""

import json
import os
import sys
import time

try:
    from confluent_kafka import KafkaException, Producer
except ImportError:
    sys.exit("The package confluent-kafka is not installed: install the extra `kafka` as README.md says.")

REGIONS = ("europe", "america", "asia")


def order(number: int) -> dict[str, object]:
    """One order; the same number always gives the same order."""
    price = 100 + (number * 7919) % 9900
    return {
        "order_id": number,
        "region": REGIONS[number * 31 % len(REGIONS)],
        "quantity": 1 + number % 5,
        "price": f"{price // 100}.{price % 100:02d}",
    }


def main(orders: int = 10_000) -> None:
    """Send so many orders, and wait until the brokers have them. Their numbers go on from those of earlier runs."""
    servers, topic = os.environ.get("KAFKA", "localhost:9092"), os.environ.get("TOPIC", "orders")
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "log_level": 2})
    try:
        producer.list_topics(timeout=10)
    except KafkaException as error:
        sys.exit(f"Kafka at {servers} does not answer ({error.args[0].str()}): `make kafka`, or export KAFKA=host:9092")
    first = time.time_ns() // 1000
    for number in range(first, first + orders):
        producer.produce(topic, key=str(number), value=json.dumps(order(number)))
        producer.poll(0)
    producer.flush()
    sys.stdout.write(f"{orders} orders are in {topic}\n")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
