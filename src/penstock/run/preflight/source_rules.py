"""What a change of a source means under a checkpoint that goes on."""

import re
from collections.abc import Callable, Mapping

from penstock.run.preflight.change import Ruling, breaking, safe, safe_after
from penstock.run.preflight.description import Values
from penstock.spec.source import FILE_FORMATS

NEW_CHECKPOINT = "Put it back; or begin with a new checkpoint, as docs/howto/change.md says."
_WAITING = "rows that are not delivered yet are read in the new way"

Rule = Callable[[str | None, str | None], Ruling]


def kind_of(source: Values) -> str:
    """Return what kind of offsets a source has: those of file formats are of one kind."""
    name = source.get("format", "").lower()
    return "files" if name in {each.lower() for each in FILE_FORMATS} else name or "table"


def source_ruling(key: str, before: Values, now: Values, *, stateful: bool) -> Ruling:
    """Return what the change of `key` means, between the settings of one source."""
    kind = kind_of(now)
    if key == "format":
        return _format(before, now)
    if key in {"path", "table", "url"}:
        return _PLACES.get(kind, _other_place)(before.get(key), now.get(key))
    if key == "schema":
        return _schema(stateful=stateful)
    name, _, option = key.partition(".")
    if name == "watermark":
        return _watermark(option, stateful=stateful)
    if name == "options":
        return _option(kind, option, before.get(key), now.get(key))
    return _NO_OFFSETS.get(name, safe(f"It holds from the next batch on: {_WAITING}."))


def added_ruling(*, is_read: bool | None) -> Ruling:
    """Return what a new source means. `is_read`: whether the query reads it, None where that is not known."""
    if is_read is False:
        return safe("The query does not read it.")
    if is_read is None:
        return safe_after("Run `penstock check FILE`, which asks Spark.", "Only the plan shows whether the query reads it.")
    return breaking(
        "Spark knows sources by their place in the query, and the checkpoint has no place for it: the start is refused.",
        action=NEW_CHECKPOINT,
    )


def removed_ruling(*, was_read: bool) -> Ruling:
    """Return what a source means that is gone. `was_read`: whether the newest batch has offsets of it."""
    if not was_read:
        return safe("The query did not read it.")
    return breaking(
        "The checkpoint holds offsets of it, and Spark knows sources by their place in the query: the start is refused.",
        action="Put the source back under its name; or begin with a new checkpoint, as docs/howto/change.md says.",
    )


_KINDS = frozenset({"files", "kafka", "journal", "penstock", "kinesis", "rate", "rate-micro-batch", "delta", "iceberg", "table"})
"""Kinds of sources whose offsets are known to differ."""


def _format(before: Values, now: Values) -> Ruling:
    if kind_of(now) not in _KINDS:
        return safe_after("Run `penstock check FILE`.", "Only Spark knows whether it has such a format, and its offsets.")
    if kind_of(before) != kind_of(now):
        return breaking(
            f"The checkpoint holds offsets of {kind_of(before)}, which Spark cannot read as those of {kind_of(now)}.",
            action=NEW_CHECKPOINT,
        )
    return safe_after(
        "Before the change deliver the files that wait: `penstock run FILE --available-now` with the old file.",
        "Files that are not delivered yet are read in the new format.",
    )


_PATTERN = re.compile(r"[*?\[\]{}\\]")


def _files_moved(before: str | None, now: str | None) -> Ruling:
    if before and now and not _PATTERN.search(now) and not _is_below(before, now):
        return breaking(
            "Spark opens the newest batch's files once more, and does not start if they lie outside of a path without pattern.",
            action="Put it back. Or deliver what waits with the old file (`penstock run FILE --available-now`), keep delivered "
            f"files out of the new path, and write it as a pattern: `path: {now.rstrip('/')}/*`.",
        )
    return safe_after(
        "Deliver what waits with the old file (`penstock run FILE --available-now`); keep delivered files out of the new path.",
        "Spark knows delivered files by their whole path: a delivered file that lies below the new one comes twice, and a "
        "file that waits below the old one is not read any more.",
    )


def _is_below(path: str, directory: str) -> bool:
    """Return whether `path`, which may be a pattern, names files in `directory` or below."""
    whole, plain = (each.removeprefix("file://").rstrip("/") for each in (directory, _PATTERN.split(path)[0]))
    return plain == whole or plain.startswith(f"{whole}/")


def _journals_moved(_before: str | None, _now: str | None) -> Ruling:
    return safe("A journal is known by the identity in it, not by its path; the start is refused if one is missing.")


def _pipeline_moved(_before: str | None, _now: str | None) -> Ruling:
    return safe_after(
        "Change it only if the file describes the same pipeline, with its ledger and accounts.",
        "Offsets are positions of that ledger, which is known by its identity: the start is refused for another one.",
    )


def _other_place(_before: str | None, _now: str | None) -> Ruling:
    return safe_after(
        "Change it only if the same table, with its history, is there now.",
        "The offsets in the checkpoint are versions of the old one.",
    )


_PLACES: Mapping[str, Rule] = {"files": _files_moved, "journal": _journals_moved, "penstock": _pipeline_moved}


def _schema(*, stateful: bool) -> Ruling:
    if stateful:
        return safe_after(
            "Run one batch: `penstock run FILE --batches 1`. If Spark refuses it, put the old schema back: nothing is lost.",
            "The query keeps state, and Spark compares its columns, by type, before the first batch is delivered.",
        )
    return safe(f"It holds from the next batch on: {_WAITING}.")


def _watermark(key: str, *, stateful: bool) -> Ruling:
    if not stateful:
        return safe("The query keeps no state, so that no row is late.")
    if key == "delay":
        return safe("The watermark goes on from where the checkpoint has it, by the new delay, and never back.")
    return safe_after(
        "Run one batch: `penstock run FILE --batches 1`. If Spark refuses it, put the old watermark back: nothing is lost.",
        "State is forgotten by another clock from now on: rows that would have been late can count, and the other way round.",
    )


_NO_OFFSETS: Mapping[str, Ruling] = {
    "on_gap": safe("It says what a start does about records that are gone; offsets stay as they are."),
    "reader": safe("Each reader goes on where the other stopped."),
    "mirror_offsets_to": safe("Penstock never reads that consumer group."),
    "client": safe("It is about Penstock's own looks at the brokers."),
    "connection_string": safe("Topics are known by their id, and others are refused at the start."),
}


def _option(kind: str, option: str, before: str | None, now: str | None) -> Ruling:
    name = option.lower()
    if name in _BEGINNINGS:
        return safe("It says where a query without a checkpoint begins: no effect, the checkpoint goes on.")
    if name in _LIMITS:
        return safe("It sets the size of batches from the next one on.")
    if kind == "kafka":
        return _kafka_option(name, before, now)
    rulings = {"files": _FILE_OPTIONS, "penstock": _CHAIN_OPTIONS, "kinesis": _KINESIS_OPTIONS}.get(kind)
    if rulings is not None:
        return rulings.get(name, safe(f"It holds from the next batch on: {_WAITING}."))
    if kind in {"rate", "rate-micro-batch", "journal"}:
        return safe("It holds from the next batch on; numbers of `rate` then begin elsewhere.")
    return safe_after(
        "Read on the page of that source whether the option can change under a checkpoint.",
        "Penstock does not know what it means for the offsets of that format.",
    )


_BEGINNINGS = frozenset({
    "startingoffsets", "startingtimestamp", "startingoffsetsbytimestamp", "startingoffsetsbytimestampstrategy", "startingversion",
    "starting", "start", "startingbatch", "startingposition",
})  # fmt: skip
_LIMITS = frozenset({
    "maxoffsetspertrigger", "minoffsetspertrigger", "maxtriggerdelay", "maxfilespertrigger", "maxbytespertrigger",
    "minpartitions", "maxrecordsperpartition", "maxcachedfiles", "discardcachedinputratio", "rowspersecond",
    "rowsperbatch", "rampuptime", "numpartitions", "maxeventspertrigger", "maxbatchespertrigger", "maxrecordspertrigger",
})  # fmt: skip
_FILTER = safe_after(
    "Before the change deliver the files that wait: `penstock run FILE --available-now` with the old file.",
    "Other files are read from now on: one that waits and no longer fits is never delivered; one that fits only now is.",
)
_FILE_OPTIONS: Mapping[str, Ruling] = {
    "filenameonly": safe_after(
        "Let no two files have one name in different directories.",
        "Files are known by their name alone, or by their whole path again: of two files with one name only one is read.",
    ),
    "pathglobfilter": _FILTER,
    "recursivefilelookup": _FILTER,
    "modifiedbefore": _FILTER,
    "modifiedafter": _FILTER,
    "basepath": _FILTER,
    "maxfileage": _FILTER,
    "latestfirst": safe("It sets the order in which waiting files are read."),
    "cleansource": safe("It says what happens to files that were delivered."),
    "sourcearchivedir": safe("It says what happens to files that were delivered."),
    "ignoremissingfiles": safe("It says what happens if a planned file is gone."),
    "ignorecorruptfiles": safe("It holds from the next batch on."),
}


_CHAIN_OPTIONS: Mapping[str, Ruling] = {
    "sink": breaking("The offsets are of another table: the start is refused.", action=NEW_CHECKPOINT),
    "accounts": safe_after(
        "Load what the new accounts got before by `penstock.read`, if it is wanted.",
        "It holds from the next batch on: of batches that are delivered no other account is read.",
    ),
    "failondataloss": safe("It says what a start does about batches that are forgotten; offsets stay as they are."),
}


_ELSEWHERE = safe_after(
    "Change it only if the same stream is there: one that was created at another time is refused at the start.",
    "A stream is known by its name and by when it was created.",
)
_KINESIS_OPTIONS: Mapping[str, Ruling] = {
    "streamname": breaking("The offsets are of another stream: the start is refused.", action=NEW_CHECKPOINT),
    "region": _ELSEWHERE,
    "endpoint": _ELSEWHERE,
    "aggregated": safe("Records of the producer library come whole, or one by one, from the next batch on."),
    "failondataloss": safe("It says what a start does about records that have expired; offsets stay as they are."),
    **dict.fromkeys(
        ("profile", "access_key_id", "secret_access_key", "session_token"),
        safe("It is about the connection; offsets stay as they are."),
    ),
}


def _kafka_option(name: str, before: str | None, now: str | None) -> Ruling:
    if name in {"subscribe", "assign", "subscribepattern"}:
        return _topics(name, before, now)
    if name == "includeheaders":
        return safe("Rows from the next batch on have the column, or lack it.")
    if name == "kafka.bootstrap.servers":
        return safe("Topics are known by their id: the start refuses those of another cluster.")
    if name.startswith("kafka.") or name in {"groupidprefix", "failondataloss", "fetchoffset.numretries"}:
        return safe("It is about the connection; offsets stay as they are.")
    return safe("It holds from the next batch on.")


def _topics(name: str, before: str | None, now: str | None) -> Ruling:
    listed = [set(re.split(r"\s*,\s*", (text or "").strip())) for text in (before, now)]
    if name == "subscribe" and before and now:
        gone = sorted(listed[0] - listed[1])
        if gone:
            return breaking(
                f"Topic {gone[0]} was read and is not named any more: the start is refused (SourcesChanged).",
                action="Name the topic again; or begin with a new checkpoint, as docs/howto/change.md says.",
            )
        return safe("A new topic is read from its first record on.")
    return safe_after(
        "Run `penstock check FILE`.", "A topic that was read must still be named; a new one is read from its first record on."
    )
