"""Spark's streaming formats, and what each source guarantees: whether the same rows can be read again for the same offsets."""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from penstock.core.guarantee import Claim, at_least_once, exactly_once, losing_rows
from penstock.core.model import SourceName
from penstock.errors import Usage
from penstock.spec.kafka_options import COMMITTED, ISOLATION, UNCOMMITTED
from penstock.spec.settings import nearest
from penstock.spec.source import FILE_FORMATS, Source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BINARY_FILE_SCHEMA = "path STRING, modificationTime TIMESTAMP, length LONG, content BINARY"
"""The only columns that `binaryFile` has; Spark requires them to be stated for a stream all the same."""

INFERENCE_CONF = "spark.sql.streaming.schemaInference"

_FIXED_COLUMNS = frozenset({"binaryfile", "text"})
_OTHERS = ("rate", "rate-micro-batch", "kafka", "journal", "penstock", "delta", "iceberg", "socket", "kinesis", "eventhubs")
_OF_SPARK = frozenset({"console", "image", "jdbc", "libsvm", "memory", "noop", "state-metadata", "statestore"})
"""Formats of Spark that cannot be read as a stream, which Spark says better."""
_PROVIDERS: Mapping[str, str] = {
    "textsocketsourceprovider": "socket",
    "textsocket": "socket",
    "ratestreamprovider": "rate",
    "ratepermicrobatchprovider": "rate-micro-batch",
    "kafkasourceprovider": "kafka",
    "deltadatasource": "delta",
}
_CLASS_OF_FILES = ("fileformat", "datasourcev2")

LOSSY_FILE_CONFS = ("ignoreMissingFiles", "ignoreCorruptFiles")
RELEVANT_CONFS = tuple(f"spark.sql.files.{name}" for name in LOSSY_FILE_CONFS)
"""Session settings that weaken a source's guarantee."""

_ACCEPTED = "on_gap: accept: records that the broker no longer has are passed over, and noted in the ledger."
_ASIDE = "undecodable: quarantine: records that cannot be decoded reach no other sink; each batch is read twice to find them."
_RULES = "expect: each batch is read twice, once for the rows that meet the rules and once to count or collect the others."
_UNSTEADY = "A rule that gives another value for the same row, such as by a function of your own."
_FORGETS = "A schema registry that forgets a schema, or gives its id to another one."
_SCATTERED = "Change events of one key in several partitions, as after partitions were added: Kafka puts them in no order then."
_COMPACTED = "A topic that is compacted before its events are read: a tombstone whose delete is gone deletes nothing."
_DROPS_BAD_ROWS = "With mode DROPMALFORMED Spark silently drops rows that it cannot parse."
_AGE = "A new file more than maxFileAge (7 days unless set) older than the newest one seen is passed over."
_SAME_NAME = "With fileNameOnly a file counts as seen if one of the same name was read from any other directory."
_ATOMIC = "A file that is still being written when Spark lists it is read as it is then: write elsewhere, then rename."
_ABORTED = f"{ISOLATION} {UNCOMMITTED}: rows of aborted transactions, and of those that are still open, are delivered too."
_REMOVED = (
    "A file removed or changed after Spark listed it: in a local or mounted directory the pipeline stops before it decides, "
    "in other stores Spark passes over it in silence."
)


def is_file_format(name: str) -> bool:
    """Return whether `name` is one of Spark's file formats, in any case."""
    return name.lower() in {known.lower() for known in FILE_FORMATS}


def needs_schema(name: str) -> bool:
    """Return whether Spark requires the columns of a stream of this format to be stated."""
    return is_file_format(name) and name.lower() not in _FIXED_COLUMNS


def no_schema(source: str, name: str) -> Usage:
    """Return the error about files of the format `name` whose columns nobody states."""
    return Usage(
        f"sources.{source} reads {name} files but has no schema.",
        remedy=f'Add schema: "name TYPE, …" with the columns of the files (or set {INFERENCE_CONF} to let Spark guess).',
    )


def likely_format(name: str) -> str | None:
    """Return the known format that `name` is a misspelling of, None if it is known, a class, or like none that is known."""
    if "." in name or is_file_format(name) or name.lower() in {*_OTHERS, *_BY_OPTIONS, *_REPLAYED, *_OF_SPARK}:
        return None
    return nearest(name, [*FILE_FORMATS, *_OTHERS])


def unknown_format(source: str, name: str) -> Usage:
    """Return the error about a format that no installed data source has."""
    known = [*sorted(FILE_FORMATS), *_OTHERS]
    close = likely_format(name) or next(iter(difflib.get_close_matches(name, known, n=1, cutoff=0.5)), None)
    guess = "" if close is None else f"Did you mean {close}? "
    return Usage(
        f"sources.{source}.format {name} is not known to this Spark.",
        remedy=f"{guess}Known are {', '.join(known)}; for any other put its jar or Python package into the session.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedSource:
    """One source of a query that no pipeline file describes. `format` is what Spark was given: a short name or a class name.

    A table has the format `table`. `paths` are those of a file source. `options` is None where the plan does not show them; they
    can hold credentials, so they are never printed.
    """

    format: str
    options: Mapping[str, str] | None = field(repr=False)
    paths: tuple[str, ...] = ()


def short_format(name: str) -> str:
    """Return Spark's short name, in lower case, of a format given by its short name or by the name of its class."""
    kind = name.rpartition(".")[2].lower().rstrip("$")
    for ending in _CLASS_OF_FILES:
        if "." in name and kind.endswith(ending):
            return kind.removesuffix(ending)
    return _PROVIDERS.get(kind, name.lower())


def relevant_confs(spark: "SparkSession") -> Mapping[str, str]:
    """Return the session's settings among RELEVANT_CONFS."""
    values = {name: spark.conf.get(name, None) for name in RELEVANT_CONFS}
    return {name: value for name, value in values.items() if value is not None}


def source_claims(sources: Mapping[str, Source], confs: Mapping[str, str]) -> tuple[Claim, ...]:
    """Return one claim for each source; `confs` are the session's settings (`relevant_confs`)."""
    return tuple(_claim(name, source, confs) for name, source in sources.items())


def opened_claims(sources: Mapping[SourceName, OpenedSource], confs: Mapping[str, str]) -> tuple[Claim, ...]:
    """Return one claim for each source that was opened elsewhere; options that the plan does not show count as not given."""
    return tuple(
        _claim_of_format(f"source {name} ({source.format})", source.format, source.options or {}, confs)
        for name, source in sources.items()
    )


def _claim_of_format(subject: str, name: str, given: Mapping[str, str], confs: Mapping[str, str]) -> Claim:
    kind = short_format(name)
    options = {key.lower(): str(value) for key, value in given.items()}
    if is_file_format(kind):
        return _files(subject, options, confs)
    if kind in {"socket", "textsocket"}:
        return at_least_once(
            subject,
            "A socket hands out each line once: what was read and not yet delivered is gone after a crash.",
            "Read files or Kafka instead.",
        )
    if kind in _BY_OPTIONS:
        return _BY_OPTIONS[kind](subject, options)
    return exactly_once(subject, *_REPLAYED.get(kind, _UNKNOWN))


def _claim(name: str, source: Source, confs: Mapping[str, str]) -> Claim:
    subject = f"source {name} ({source.format or f'table {source.table}'})"
    found = _claim_of_format(subject, source.format or "table", source.options, confs)
    warnings = [_ACCEPTED] if source.on_gap == "accept" else []
    if source.decode is not None:
        of_registry = () if source.decode.registry is None else (_FORGETS,)
        of_changes = () if source.decode.changes is None else (_SCATTERED, _COMPACTED)
        found = replace(found, breaks=(*found.breaks, *of_registry, *of_changes))
        warnings += [_ASIDE] if source.decode.undecodable == "quarantine" else []
    if source.expect:
        found, warnings = replace(found, breaks=(*found.breaks, _UNSTEADY)), [*warnings, _RULES]
    return replace(found, warnings=(*found.warnings, *warnings))


def _files(subject: str, options: Mapping[str, str], confs: Mapping[str, str]) -> Claim:
    lossy = [name for name in LOSSY_FILE_CONFS if _is_on(options.get(name.lower(), confs.get(f"spark.sql.files.{name}")))]
    if lossy:
        return losing_rows(
            subject,
            f"{lossy[0]} makes Spark skip files that it cannot read: their rows are lost, and nothing says which.",
            f"Set {lossy[0]} to false; then such a file stops the pipeline.",
        )
    return exactly_once(
        subject,
        "Spark logs the files of a batch before it reads them, so a repeated batch reads the same files.",
        *(_REMOVED, _ATOMIC),
        *(() if options.get("latestfirst") == "true" else (_AGE,)),
        warnings=_file_warnings(options),
    )


def _file_warnings(options: Mapping[str, str]) -> list[str]:
    warnings = [_DROPS_BAD_ROWS] if options.get("mode", "").upper() == "DROPMALFORMED" else []
    warnings += [_SAME_NAME] if _is_on(options.get("filenameonly")) else []
    clean = options.get("cleansource", "off").lower()
    if clean != "off":
        done = {"delete": "deleted", "archive": "moved away"}.get(clean, "removed")
        warnings.append(f"cleanSource: input is {done} once its batch is committed, so earlier batches cannot be read again.")
    return warnings


def _kafka(subject: str, options: Mapping[str, str]) -> Claim:
    if options.get("failondataloss", "true").lower() == "false":
        return losing_rows(
            subject,
            "failOnDataLoss=false makes Spark skip records that the broker no longer has: they are lost, and nothing says which.",
            "Leave failOnDataLoss out, so that a gap stops the pipeline; on_gap: accept goes on and notes what is lost.",
        )
    uncommitted = options.get(ISOLATION, COMMITTED) != COMMITTED
    return exactly_once(
        subject,
        "Offsets name records, and records do not change while the broker keeps them"
        + ("." if uncommitted else "; only those of ended transactions are read."),
        "Retention shorter than the longest outage: it is noticed, and what is gone is gone.",
        warnings=[_ABORTED] if uncommitted else [],
    )


def _delta(subject: str, options: Mapping[str, str]) -> Claim:
    skipping = [name for name in ("ignoreDeletes", "ignoreChanges", "skipChangeCommits") if _is_on(options.get(name.lower()))]
    return exactly_once(
        subject,
        "Offsets name versions of the table, and a version does not change.",
        "VACUUM or log retention shorter than the longest outage.",
        warnings=[f"{name}: changes of existing rows are passed over or sent again." for name in skipping],
    )


def _chained(subject: str, options: Mapping[str, str]) -> Claim:
    if options.get("failondataloss", "true").lower() == "false":
        return losing_rows(
            subject,
            "failOnDataLoss=false passes over batches that the ledger has forgotten, and files that are gone: their rows are "
            "lost, and nothing says which.",
            "Leave failOnDataLoss out, so that what is lost stops the pipeline, with numbers.",
        )
    return exactly_once(
        subject,
        "Offsets are positions of the first pipeline's ledger, and a decided batch never changes; a ledger or copy of another "
        "identity is refused.",
        "Files that maintenance removes or rewrites before they are read, and a ledger that forgets batches before (it keeps "
        "10,000 entries): refused with numbers.",
        "A rewind of the first pipeline behind what was read: refused until this pipeline is rewound, too.",
    )


def _kinesis(subject: str, options: Mapping[str, str]) -> Claim:
    if options.get("failondataloss", "true").lower() == "false":
        return losing_rows(
            subject,
            "failOnDataLoss=false passes over records that have expired: they are lost, and nothing says which.",
            "Leave failOnDataLoss out, so that what is lost stops the pipeline, with numbers.",
        )
    return exactly_once(
        subject,
        "Offsets name the first and the last record of a batch in each shard by their sequence numbers.",
        "Retention shorter than the longest outage: it is noticed, and what is gone is gone.",
        "A producer of your own that sends a record again after a lost answer: to Kinesis these are two records.",
    )


_BY_OPTIONS: Mapping[str, Callable[[str, Mapping[str, str]], Claim]] = {
    "kafka": _kafka,
    "delta": _delta,
    "penstock": _chained,
    "kinesis": _kinesis,
    "penstock_kinesis": _kinesis,
}
_NUMBERED = ("Offsets are sequence numbers of records that the service keeps.", "Retention shorter than the longest outage.")
_REPLAYED: Mapping[str, tuple[str, str]] = {
    "rate": (
        "Rows follow from the offset (seconds since the start that the checkpoint logs) and the options.",
        "A changed rowsPerSecond or a lost checkpoint: the same seconds then stand for other rows.",
    ),
    "rate-micro-batch": (
        "Rows follow from the offset and the options alone.",
        "A changed rowsPerBatch, startTimestamp or advanceMillisPerBatch.",
    ),
    **dict.fromkeys(
        ("journal", "penstock_journal"),
        (
            "Offsets are sequence numbers of events that are on the disk; segments stay until this pipeline has released them.",
            "A disk that loses what was forced to it, unless the journal has a copy; a reader that `penstock journal` forgot.",
        ),
    ),
    **dict.fromkeys(("aws-kinesis", "eventhubs"), _NUMBERED),
    "table": (
        "Assumed: the table's format can give the rows between two logged offsets again, as Spark demands of every stream.",
        "A format that cannot, or files and versions removed before they were delivered.",
    ),
}
_UNKNOWN = (
    (
        "Assumed: the source can give the rows between two logged offsets again, as Spark demands of every source. "
        "Penstock does not know this format."
    ),
    "A source that gives other rows for the same offsets.",
)
"""Why a format's rows can be read again, and what breaks that."""


def _is_on(value: str | None) -> bool:
    return value is not None and value.lower() == "true"
