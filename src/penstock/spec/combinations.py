"""Finds settings that are valid alone and impossible together."""

from collections.abc import Iterator, Mapping
from itertools import combinations

from penstock.spec.complaint import Complaint, KeyPath, dotted
from penstock.spec.delta import Delta
from penstock.spec.iceberg import Iceberg
from penstock.spec.kafka import Kafka
from penstock.spec.lake import LakeTable
from penstock.spec.many_tables import FillsManyTables
from penstock.spec.place import is_read_from, same_or_nested
from penstock.spec.sink import Parquet, Sink
from penstock.spec.table import Table

_COMPLETE = "in complete mode every batch is the whole result"
_UPDATE = "in update mode a batch sends rows again that have changed"


def mode_complaints(sinks: Mapping[str, Sink], output_mode: str) -> Iterator[Complaint]:
    """Yield a complaint for each sink that cannot show what `output_mode` sends."""
    for name, sink in sinks.items():
        reason = _mode_misfit(sink, output_mode)
        if reason is not None:
            yield Complaint(
                message=f"does not go with output_mode: {output_mode}: {reason[0]}",
                remedy=reason[1],
                at=("sinks", name, "write" if isinstance(sink, Table | LakeTable) else "type"),
            )


def _mode_misfit(sink: Sink, output_mode: str) -> tuple[str, str] | None:
    if isinstance(sink, Parquet) and output_mode != "append":
        because = _COMPLETE if output_mode == "complete" else _UPDATE
        return f"{because}, and {sink.type} can only append", "Use output_mode: append, or a sink that replaces or upserts."
    if isinstance(sink, Kafka) and output_mode == "complete":
        return f"{_COMPLETE}, and a topic would get all of it again", "Use output_mode: update or append."
    return _write_misfit(sink, output_mode) if isinstance(sink, Table | LakeTable) else None


def _write_misfit(sink: Table | LakeTable, output_mode: str) -> tuple[str, str] | None:
    if sink.write == "replace" and output_mode != "complete":
        return "replace would keep the last batch only", "Use write: append or upsert, or output_mode: complete."
    if output_mode == "complete" and sink.write in {"append", "insert_if_absent", "merge", "overwrite_partitions"}:
        return f"{_COMPLETE}, so {sink.write} cannot show it", "Use write: replace, or upsert with a key."
    if output_mode == "update" and sink.write not in {"upsert", "merge"}:
        return f"{_UPDATE}, so {sink.write} cannot show it", "Use write: upsert with a key."
    return None


def place_complaints(sinks: Mapping[str, Sink], own: Mapping[str, str]) -> list[Complaint]:
    """Return complaints about accounts and tables that are one place, overlap, or hold the pipeline's `own` directories."""
    places: dict[KeyPath, str] = {(name,): place for name, place in own.items()}
    places |= account_urls(sinks)
    overlaps = [
        _overlap(path, place, dotted(other), other_place)
        for (other, other_place), (path, place) in combinations(places.items(), 2)
        if same_or_nested(other_place, place)
    ]
    return [*overlaps, *_shared_targets(sinks)]


def account_urls(sinks: Mapping[str, Sink]) -> Mapping[KeyPath, str]:
    """Return the URL of every account and every table that is a directory, of every sink, by its key path."""
    tables = {("sinks", name, "path"): sink.path for name, sink in sinks.items() if isinstance(sink, Delta)}
    tables |= {("sinks", name, "table"): sink.url for name, sink in sinks.items() if isinstance(sink, Iceberg)}
    return tables | {
        ("sinks", name, "accounts", account): settings.url
        for name, sink in sinks.items()
        if isinstance(sink, Parquet)
        for account, settings in sink.accounts.items()
    }


def own_output_complaints(sinks: Mapping[str, Sink], paths: Mapping[str, str]) -> list[Complaint]:
    """Return complaints about sources that would read what a sink writes. `paths` are what file sources read, by name."""
    return [
        _overlap(("sources", name, "path"), place, dotted(account), url)
        for name, place in paths.items()
        for account, url in account_urls(sinks).items()
        if is_read_from(url, place)
    ]


def _overlap(path: KeyPath, place: str, other: str, other_place: str) -> Complaint:
    how = "is the same place as" if place == other_place else "overlaps with"
    return Complaint(message=f"({place}) {how} {other} ({other_place})", remedy="Give each a directory of its own.", at=path)


def _shared_targets(sinks: Mapping[str, Sink]) -> Iterator[Complaint]:
    """Yield a complaint for each sink that fills a table or a topic of a sink before it."""
    for (other, first), (name, sink) in combinations(sinks.items(), 2):
        if isinstance(sink, Table) and isinstance(first, Table) and sink.is_table_of(first):
            yield Complaint(
                message=f"({sink.table} in {sink.database}) is also the table of sinks.{other}",
                remedy="Give each sink a table of its own.",
                at=("sinks", name, "table"),
            )
        elif isinstance(sink, FillsManyTables) and isinstance(first, FillsManyTables) and sink.may_fill_table_of(first):
            yield Complaint(
                message=f"can name a table of sinks.{other}, as `tables` says",
                remedy="Give each sink tables of its own: narrow tables, or name the tables in another way.",
                at=("sinks", name, sink.template_key),
            )
        if isinstance(sink, Kafka) and isinstance(first, Kafka) and sink.is_topic_of(first):
            yield Complaint(
                message=f"({sink.topic} in {sink.bootstrap}) is also a topic of sinks.{other}",
                remedy="Give each sink topics of its own, or set `shared: true` in both.",
                at=("sinks", name, "topic"),
            )
