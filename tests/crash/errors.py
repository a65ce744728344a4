"""One bad thing at a time: it is told in one sentence with a remedy, loses nothing, and is over once it is mended."""

import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.crash.commandline import Ended, penstock
from tests.crash.world import ACCOUNTS, Row, World, account_rows, assert_same, database_rows, make_world

Content = Mapping[str, "Counter[Row]"]

_OF_JAVA_OR_PYTHON = re.compile(r"\bat \S+\(|Caused by|Traceback|Exception thrown|\bpy4j\b|Errno")
WAREHOUSE = "warehouse"


def run(world: World, *options: str) -> Ended:
    """`penstock run`, with the error on standard output as well as on standard error."""
    return penstock("run", str(world.file), "--json", *options)


def feed(world: World, *, rows: int = 30) -> None:
    """One more file waits."""
    number = len(list((world.root / "incoming").iterdir()))
    world.feed(random.Random(f"more {number}"), files=1, rows_per_file=rows)


def new_world(root: Path, *, extra: str = "", wide: bool = False) -> World:
    """Nothing was ever delivered, one file waits, and every batch is one file."""
    return make_world(root / "world", files=1, rows_per_file=30, seed=7, per_trigger=1, extra=extra, wide=wide)


def begun(world: World) -> World:
    """One batch is delivered and one file waits."""
    done = run(world)
    assert done.code == 0, str(done)
    feed(world)
    return world


def newest_input(world: World) -> Path:
    """The file that waits."""
    return max((world.root / "incoming").iterdir())


def content(world: World) -> Content:
    """What every account and the database hold."""
    shown = {account: _account_rows(world.account(account)) for account in ACCOUNTS}
    database = world.root / "warehouse.db"
    return {**shown, WAREHOUSE: database_rows(database) if database.exists() else Counter()}


def _account_rows(root: Path) -> "Counter[Row]":
    return account_rows(root) if any(root.rglob("*.parquet")) else Counter()  # an empty directory has no schema


def assert_told(ended: Ended, kind: str, *, code: int, said: Sequence[str], remedy: str) -> None:
    """The exit code, one sentence that names the culprit, one of what to do, and nothing else."""
    lines = ended.err.splitlines()
    assert ended.code == code, str(ended)
    assert ended.last["error"]["kind"] == kind, str(ended)
    assert len(lines) == 2, ended.err
    assert lines[0].startswith("error: "), ended.err
    assert lines[0].endswith("."), ended.err
    assert not _OF_JAVA_OR_PYTHON.search(ended.err), ended.err
    missing = [part for part in said if part not in lines[0]]
    assert not missing, f"{missing} is not in: {lines[0]}"
    assert remedy in lines[1], f"{remedy!r} is not in: {lines[1]}"


def assert_unchanged(world: World, before: Content) -> None:
    """The trouble has neither taken nor brought a row."""
    for place, found in content(world).items():
        assert_same(place, found=found, expected=before[place])


def assert_between(world: World, before: Content) -> None:
    """What was there is there, and what came is of the batch that waits, once: it may be decided and shown in part."""
    everything = {**world.expected, WAREHOUSE: sum(world.expected.values(), Counter[Row]())}
    for place, found in content(world).items():
        assert not before[place] - found, f"{place} has lost rows"
        assert not found - everything[place], f"{place} has rows twice"


def assert_continues(world: World) -> None:
    """The next run delivers what waits and what comes, exactly, and `verify` agrees."""
    feed(world)
    done = run(world)
    assert done.code == 0, str(done)
    world.assert_exact()
    verified = penstock("verify", str(world.file), "--json")
    assert verified.code == 0, str(verified)
