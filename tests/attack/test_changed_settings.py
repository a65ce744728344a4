"""Settings of a sink that change between two starts, with a batch outstanding and without.

The next start delivers exactly with the new ones, or is refused; then, with the old ones put back, all is delivered.
"""

from collections import Counter

import pytest
from tests.attack.places import pipelines
from tests.attack.reading import expected, read

from penstock.errors import PenstockError

__all__ = ["pipelines"]


def rows_of(number):
    return [(10 * number + at, f"batch {number}") for at in range(6)]


def sized(limit):
    return {"inline_limit_bytes": limit}


TABLES = {
    "table": {"table": "u"},
    "name": {"name": "renamed"},
    "name and table": {"name": "renamed", "table": "u"},
    "inline": sized(100_000),
    "spool": {"spool": "elsewhere"},
    "write": {"write": "replace"},
    "create": {"create": False},
}
LAKE = {
    "partitions": {"partition_by": ["name"]},
    "compression": {"compression": "snappy"},
    "inline": sized(100_000),
    "file size": {"target_file_size_bytes": 1_000},
    "name": {"name": "renamed"},
    "another account": {"accounts": ("elsewhere",)},
    "one account more": {"accounts": ("only", "more")},
    "name and account": {"name": "renamed", "accounts": ("elsewhere",)},
}
WORKS = {"inline", "create", "compression", "file size", "one account more"}
"""These change nothing of what is delivered or where."""


@pytest.mark.parametrize("outstanding", [True, False], ids=["outstanding", "published"])
@pytest.mark.parametrize(
    ("kind", "change"),
    [(kind, change) for kind in ("sqlite", "duckdb", "postgres", "mysql") for change in TABLES]
    + [("parquet", change) for change in LAKE],
)
def test_a_start_delivers_exactly_or_is_refused(pipelines, tmp_path, kind, change, outstanding):
    pipeline = pipelines(kind, **sized(0))
    pipeline.run(rows_of(0))
    pipeline.run(rows_of(1), is_dying=outstanding)
    changed = (LAKE if kind == "parquet" else TABLES)[change]
    if "spool" in changed:
        changed = {"spool": str(tmp_path / "elsewhere")}
    before = dict(pipeline.settings)
    pipeline.settings.update(changed)
    refusal = None
    try:
        pipeline.run(rows_of(2))
    except PenstockError as found:
        refusal = found
    assert refusal is None or change not in WORKS, refusal
    if refusal is not None:
        assert refusal.remedy
        pipeline.settings = before
        pipeline.recover()
        while (number := pipeline.decided()) < 3:
            pipeline.run(rows_of(number))
    replaced = change == "write" and refusal is None
    awaited = [rows_of(number) for number in ([2] if replaced else [0, 1, 2])]
    assert there(pipeline, kind, changed) == sum((expected(pipeline.batch(rows)) for rows in awaited), Counter())
    assert pipeline.verify().ok


def there(pipeline, kind, changed):
    """In the old place and in the new one."""
    found = pipeline.content()
    if kind != "parquet" and "table" in changed:
        try:
            found += read(pipeline.rig, pipeline.columns, table=changed["table"])
        except Exception:  # noqa: BLE001 - of four drivers: there is none
            return found
    return found
