"""What `penstock check` asks of executors that read Kafka by Penstock's own reader."""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.core.model import Finding


@dataclass(frozen=True, slots=True)
class ClientCheck:
    """Checks that a task can import the client library that the reader needs there."""

    def findings(self) -> Sequence[Finding]:
        try:
            import confluent_kafka  # noqa: PLC0415 - whether that works is the question
        except ImportError as missing:
            message = f"{missing}: Penstock's own reader needs confluent-kafka on every executor: pip install 'penstock[kafka]'."
            return [Finding(subject="Kafka's client", ok=False, message=message)]
        return [Finding(subject="Kafka's client", ok=True, message=f"confluent-kafka {confluent_kafka.__version__}")]
