"""What `penstock check` asks of the processes that read Kafka: whether client, schema registry and libraries are there."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from penstock.core.model import Finding
from penstock.errors import PenstockError
from penstock.source.kafka.decode import place_of, subjects_of
from penstock.spec.kafka_options import single_topic
from penstock.spec.registry import Decode
from penstock.spec.source import Source
from penstock.support.extras import install_command
from penstock.support.secret import shown_text


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryCheck:
    """The check of what one source decodes with: packages and registry. Picklable.

    Needs no package of an extra before it runs.
    """

    source: str
    decode: Decode
    subjects: tuple[tuple[str, int | None], ...]

    def findings(self) -> Sequence[Finding]:
        ok, message = self._found()
        what = "decoding" if self.decode.registry is None else "schema registry"
        return [Finding(subject=f"{what} of {self.source}", ok=ok, message=message)]

    def _found(self) -> tuple[bool, str]:
        try:
            from penstock.registry import decoding  # noqa: F401, PLC0415 - an extra
            from penstock.registry.client import Registry  # noqa: PLC0415
        except ImportError as missing:
            return False, f"the package {missing.name} is not installed: {install_command('registry')}"
        if self.decode.registry is None:
            return True, "its packages are installed"
        try:
            for subject, version in self.subjects:
                Registry(place_of(self.decode.registry)).of_subject(subject, version)
        except PenstockError as error:
            return False, str(error)
        return True, shown_text(self.decode.registry.url)


def registry_checks(sources: Mapping[str, Source]) -> Iterator[RegistryCheck]:
    """Yield one check for each source that decodes."""
    for name, source in sources.items():
        if source.decode is not None:
            subjects = tuple(subjects_of(source.decode, single_topic(source.options)).values())
            yield RegistryCheck(source=name, decode=source.decode, subjects=subjects)


@dataclass(frozen=True, slots=True)
class ClientCheck:
    """Checks that a task can import the client library that the reader needs there."""

    def findings(self) -> Sequence[Finding]:
        try:
            import confluent_kafka  # noqa: PLC0415 - whether that works is the question
        except ImportError as missing:
            message = f"{missing}: Penstock's own reader needs confluent-kafka on every executor: {install_command('kafka')}"
            return [Finding(subject="Kafka's client", ok=False, message=message)]
        return [Finding(subject="Kafka's client", ok=True, message=f"confluent-kafka {confluent_kafka.__version__}")]
