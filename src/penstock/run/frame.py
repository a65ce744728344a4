"""The Spark session of a pipeline file, and the DataFrame that its sources and transform make."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession

from penstock.core.model import SourceName
from penstock.run.encode import encoded
from penstock.run.redaction import secrets_of
from penstock.run.session import session
from penstock.source.kafka.options import is_kafka
from penstock.source.open import open_sources
from penstock.spec.pipeline import PipelineSettings
from penstock.transform.apply import apply_transform

if TYPE_CHECKING:
    from penstock.registry.decoding import DecodePass


def session_of(settings: PipelineSettings) -> SparkSession:
    """Return the active Spark session, or a new one with the settings of the file and its log in `<home>/spark.log`."""
    readers = {source.reader for source in settings.sources.values() if is_kafka(source)}
    return session(
        app=settings.pipeline,
        master=settings.spark.master,
        conf=settings.spark.conf,
        packages=settings.spark.packages,
        log=Path(settings.home) / "spark.log",
        connector="needed" if "spark" in readers else "wanted" if "auto" in readers else "none",
        secret_options=secrets_of(settings),
    )


def frame_of(
    settings: PipelineSettings,
    spark: SparkSession,
    *,
    modules: Path | None,
    decoding: "Mapping[SourceName, DecodePass] | None" = None,
) -> tuple[DataFrame, Mapping[SourceName, DataFrame]]:
    """Return the DataFrame that is delivered, and those of the sources below it. `decoding`: see `open_sources`. Raises Usage."""
    sources = open_sources(spark, settings.sources, decoding=decoding)
    return encoded(settings, apply_transform(spark, sources, settings.transform, modules=modules)), sources
