"""A run's description: the pipeline as it ran, without secrets, in a small file below the pipeline's home.

Written when a run has opened the ledger and before it decides a batch, under its generation. What the newest decision's run was
is therefore the file of that generation, or unknown: the file of an older run is never taken for it. Nothing but the comparison
relies on these files.
"""

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from penstock.core.codec.document import decode, encode_document
from penstock.core.codec.fields import INTEGER, TEXT, Record
from penstock.core.model import Generation, Json, LedgerId, PipelineName, new_nonce
from penstock.errors import PenstockError
from penstock.spec.pipeline import PipelineSettings
from penstock.spec.settings import Settings
from penstock.support.private_files import make_private_directory, open_private
from penstock.transform.state_held import StateHeld

FORMAT, VERSION = "penstock.run", 1
LONGEST, LONGEST_SCHEMA = 200, 4_000
"""Values of more characters are kept by their digest."""
KEPT = 200
"""So many of the newest descriptions are kept, some kilobytes each: `checkpoint rebuild` asks what computed older batches."""

Values = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDescription:
    """The pipeline as one run had it. Values that are the default are left out, so that a newer default is no change.

    `sources` and `sinks` by name; `query` is everything else. `state` is None where the query's plan could not be seen.
    """

    query: Values
    sources: Mapping[str, Values]
    sinks: Mapping[str, Values]
    versions: Values = field(default_factory=dict)
    state: tuple[StateHeld, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRun:
    """A description and the run that it is of."""

    pipeline: PipelineName
    ledger_id: LedgerId | None
    generation: Generation
    description: RunDescription


_STATE = Record(StateHeld, {"kind": TEXT, "keys": TEXT, "holds": TEXT, "opaque": INTEGER})
_DESCRIPTION = Record(
    RunDescription,
    {
        "query": TEXT.by_name,
        "sources": TEXT.by_name.by_name,
        "sinks": TEXT.by_name.by_name,
        "versions": TEXT.by_name,
        "state": _STATE.listed.optional,
    },
)
_RUN = Record(
    RecordedRun,
    {"pipeline": TEXT, "ledger_id": TEXT.optional, "generation": INTEGER},
    parts={"description": _DESCRIPTION},
)


def encode_run(run: RecordedRun) -> bytes:
    """Return the bytes of a run's description."""
    return encode_document(FORMAT, VERSION, _RUN.fields_of(run))


def decode_run(data: bytes) -> RecordedRun:
    """Return the description in `data`. Raises LedgerMismatch, FormatTooNew."""
    return decode(data, kind=FORMAT, where="A run's description", readers={VERSION: _RUN.read})


def record_run(home: str, run: RecordedRun, *, keep: Collection[Generation]) -> None:
    """Write the description of a run into `home`, and remove all but `keep` and the newest. A disk that is full keeps no run."""
    directory = _directory(home)
    fresh = directory / f".run-{new_nonce()}"
    with suppress(OSError):
        make_private_directory(directory.parent)
        make_private_directory(directory)
        try:
            with open_private(fresh, "xb") as file:
                file.write(encode_run(run))
            fresh.replace(directory / f"{run.generation}.json")
        finally:
            fresh.unlink(missing_ok=True)
        kept = {f"{generation}.json" for generation in (run.generation, *keep)}
        newest = sorted(directory.glob("*.json"), key=lambda path: path.stat().st_mtime_ns, reverse=True)[:KEPT]
        for path in directory.iterdir():
            if path.name not in kept and path not in newest:
                path.unlink(missing_ok=True)


def recorded_run(home: str, generation: Generation, *, ledger_id: LedgerId | None) -> RunDescription | None:
    """Return the description of the run that opened `generation` of that ledger; None if there is none that can be read."""
    with suppress(OSError, PenstockError):
        run = decode_run((_directory(home) / f"{generation}.json").read_bytes())
        if (run.generation, run.ledger_id) == (generation, ledger_id):
            return run.description
    return None


def _directory(home: str) -> Path:
    return Path(home) / "runs"


def describe(
    settings: PipelineSettings,
    *,
    modules: Path | None,
    versions: Values,
    state: tuple[StateHeld, ...] | None = None,
) -> RunDescription:
    """Return the description of a pipeline file. `modules` is the directory in which modules of the user are found, too."""
    query = dict(_query(settings))
    if settings.transform is not None and settings.transform.python is not None:
        found = _module_digest(settings.transform.python.partition(":")[0], modules)
        query |= {} if found is None else {"transform.module": found}
    return RunDescription(
        query=query,
        sources={name: dict(_values(source)) for name, source in settings.sources.items()},
        sinks={name: dict(_values(sink)) for name, sink in settings.sinks.items()},
        versions=versions,
        state=state,
    )


_OF_QUERIES = ("spark.sql.shuffle.", "spark.sql.streaming.", "spark.sql.session.", "spark.sql.ansi.", "spark.sql.adaptive.")
"""How the settings of Spark begin whose values are noted."""
_OF_THE_RUN = ("guarantee", "transform", "output_mode", "checkpoint", "spool", "quarantine")


def _query(settings: PipelineSettings) -> Iterator[tuple[str, str]]:
    shown = settings.shown()
    for key in _OF_THE_RUN:
        given = getattr(settings, key)
        if isinstance(given, Settings):
            yield from ((f"{key}.{name}", text) for name, text in _values(given))
        elif given is not None:
            yield key, _text(shown[key])
    yield "trigger", " ".join(f"{key} {text}" for key, text in _values(settings.trigger))
    for name, value in _as_mapping(settings.spark.shown()["conf"]).items():
        yield f"spark.conf.{name}", _text(value) if name.startswith(_OF_QUERIES) else "set"  # it may be a secret by any name


def _values(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield the settings that are not the default, each as text by its dotted key, secrets masked."""
    for key, shown in settings.given():
        longest = LONGEST_SCHEMA if key == "schema" else LONGEST
        yield key, _text(_plain_sql(shown) if key in _SQL and isinstance(shown, str) else shown, longest=longest)


_SQL = frozenset({"sql", "where", "delete_when", "update_when", "merge", "schema"})
_TOKEN = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`|(?:--[^\n]*|/\*(?!\+).*?\*/|\s+)+""", re.DOTALL)


def _plain_sql(text: str) -> str:
    """Return SQL without comments, each run of blanks as one: texts that differ in these only are one query."""
    return _TOKEN.sub(lambda found: found[0] if found[0][0] in "'\"`" else " ", text).strip().rstrip(";").rstrip()


def _text(value: Json, *, longest: int = LONGEST) -> str:
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    return text if len(text) <= longest else f"sha256 {digest_of(text.encode())} of {len(text)} characters"


def digest_of(data: bytes) -> str:
    """Return 16 hexadecimal digits that tell one content from another."""
    return hashlib.sha256(data).hexdigest()[:16]


def _as_mapping(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, dict) else {}


def _module_digest(module: str, modules: Path | None) -> str | None:
    """Return the digest of the file of a module beside the pipeline file, None for a module that is elsewhere."""
    place = (modules or Path()).joinpath(*module.split("."))
    for path in (place.with_suffix(".py"), place / "__init__.py"):
        with suppress(OSError):
            return f"sha256 {digest_of(path.read_bytes())}"
    return None
