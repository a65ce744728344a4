"""The streams that a pipeline reads, from its settings. Nothing is asked there."""

from collections.abc import Mapping

from penstock.core.model import SourceName
from penstock.source.kinesis.settings import BEGINS, EACH, NAME, KinesisSettings, settings_in
from penstock.spec.kinesis_options import STARTING, starting_position
from penstock.spec.pipeline import DeliverySettings
from penstock.spec.source import Source


def is_kinesis(source: Source) -> bool:
    """Return whether the source is read from Kinesis."""
    return (source.format or "").lower() == "kinesis"


def data_source_options(name: str, source: Source) -> Mapping[str, str]:
    """Return the options of the data source for `source`."""
    given = {key: value for key, value in source.options.items() if key.lower() != STARTING.lower()}
    starting = next((value for key, value in source.options.items() if key.lower() == STARTING.lower()), "LATEST")
    begins = starting_position(starting) or "LATEST"
    by_shard = {} if isinstance(begins, str) else {f"{EACH}{shard}": position for shard, position in begins.items()}
    return {**given, NAME: name, **by_shard, **({BEGINS: begins} if isinstance(begins, str) else {})}


def settings_of(name: str, source: Source) -> KinesisSettings:
    """Return the settings of the reader of `source`."""
    return settings_in(data_source_options(name, source))


def kinesis_sources(settings: DeliverySettings) -> Mapping[SourceName, KinesisSettings]:
    """Return the sources that are read from Kinesis. Nothing is asked there."""
    sources: Mapping[str, Source] = getattr(settings, "sources", {})
    return {SourceName(name): settings_of(name, source) for name, source in sources.items() if is_kinesis(source)}
