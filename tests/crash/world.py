"""A scratch pipeline with a known source: what must come out is known row by row before anything runs."""

import csv
import hashlib
import io
import os
import random
import re
import signal
import sqlite3
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from tests.crash import shared_java
from tests.crash.awaited import ended
from tests.crash.commandline import Ended, penstock
from tests.crash.forked import Forked, unforked
from tests.servers.server import Outside, Place

Row = tuple[object, ...]
ACCOUNTS = ("EWR", "JFK", "LGA")
SCHEMA = "id INT, origin STRING, month INT, payload STRING, amount DOUBLE"

_STAYS = re.compile(
    r"[0-9a-f]{16}\.id|ledger-g\d+-\d+-[0-9a-f]{16}-[0-9a-f]{32}\.id|posted-\d{12}-[0-9a-f]{16}\.id|marker-\d{20}\.json|\.owner\.json"
)

PIPELINE = """\
pipeline: crash
home: ./state
spark:
  master: {master}
  conf: {{spark.ui.enabled: false, spark.sql.shuffle.partitions: 2, spark.driver.memory: 1g, spark.log.level: "OFF"}}
sources:
  flights:
    format: csv
    path: ./incoming
    schema: "{schema}"
    options: {{header: true, maxFilesPerTrigger: {files}}}
sinks:
  lake:
    type: parquet
    accounts: {{{accounts}}}
    route: {{column: origin}}
    partition_by: [month]
  warehouse:
    type: sqlite
    url: sqlite:///warehouse.db
    table: flights
retry_timeout: 5s
trigger: {{available_now: true}}
{extra}
"""
"""`retry_timeout`: less than the usual minute, since some runs fail because a server is down until they have ended."""


STAGED_BY_TASKS = ("-c", "from penstock.stage import path; path.DRIVER_ROWS = 0; import penstock.__main__")
"""A `World.program` whose batches are never small enough for the driver."""


@dataclass(frozen=True)
class World:
    """One scratch directory with pipeline file, source and sinks."""

    root: Path
    expected: Mapping[str, "Counter[Row]"]
    wide: bool = False
    """Whether rows have a payload that no compression makes small, so that few of them fill a staged piece."""
    stores: Mapping[str, Outside] = field(default_factory=dict)
    """The accounts that are not directories, looked at from outside."""
    spool: Outside | None = None
    """The spool if it is not a directory."""
    program: tuple[str, ...] = ("-m", "penstock")
    """What Python is given to run the command in a process of its own."""
    forked: bool = True
    """Whether that process is a fork of a Python that has the libraries imported."""

    @property
    def file(self) -> Path:
        return self.root / "pipeline.yaml"

    @property
    def checkpoint(self) -> Path:
        return self.root / "state" / "checkpoint"

    def account(self, name: str) -> Path:
        return self.root / "lake" / name.lower()

    def listing(self, account: str) -> Mapping[str, object]:
        """Every file that a reader who only lists the account finds, and what tells it from another of that name."""
        if account in self.stores:
            return {
                name: version for name, version in self.stores[account].listing().items() if not name.startswith("_penstock/")
            }
        root, files = self.account(account), dict[str, object]()
        for directory, _, names in os.walk(root):
            for path in (Path(directory, name) for name in names):
                status = path.stat()
                files[path.relative_to(root).as_posix()] = (status.st_size, status.st_ino)
        return files

    def sold(self) -> int:
        """How many rows are in the table, which may not be there yet."""
        try:
            with closing(sqlite3.connect(f"file:{self.root}/warehouse.db?mode=ro", uri=True)) as connection:
                return int(connection.execute("SELECT count(*) FROM flights").fetchone()[0])
        except sqlite3.OperationalError:
            return 0

    def rows_in(self, account: str, name: str) -> "Counter[Row]":
        """The rows of one file."""
        store = self.stores.get(account)
        return file_rows(self.account(account) / name) if store is None else parquet_rows(io.BytesIO(store.get(name)), name)

    def start(
        self, *arguments: str, faults: str = "", once: Path | None = None, java: Mapping[str, str] | None = None
    ) -> "subprocess.Popen[str]":
        """`penstock ARGUMENTS` in a session of its own, on `java` as its environment names it; the caller awaits or kills it."""
        environment = {**os.environ, "PENSTOCK_FAULTS": faults, **(java or {})}
        if once is not None:
            environment["PENSTOCK_FAULTS_ONCE"] = str(once)
        start = Forked if self.forked else unforked
        return start([*self.program, *arguments], cwd=self.root, env=environment, new_session=True)

    def run(self, *arguments: str, faults: str = "", once: Path | None = None) -> "subprocess.CompletedProcess[str]":
        """`penstock ARGUMENTS`, awaited."""
        process = self.start(*arguments, faults=faults, once=once)
        out, err = ended(process)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def run_with(self, fault: str, *, once: Path | None = None) -> Ended:
        """`penstock run` in a process of its own, on the shared Java process: the fault may kill it."""
        process = self.start("run", str(self.file), "--json", faults=fault, once=once, java=shared_java.environment())
        out, err = ended(process)
        shared_java.end_application()
        return Ended(process.returncode, out, err)

    def kill(self, fault: str) -> None:
        """A run that dies there."""
        killed = self.run_with(fault)
        assert killed.code == -signal.SIGKILL, str(killed)

    def run_to_the_end(self) -> None:
        """One more run that nobody disturbs, and what attempts left is collected."""
        for command in (("run", "--available-now"), ("sweep", "--yes")):
            done = penstock(command[0], str(self.file), *command[1:], "--json")
            assert done.code == 0, str(done)

    def rewrite(self, *changes: tuple[str, str]) -> None:
        """Change the pipeline file."""
        text = self.file.read_text()
        for old, new in changes:
            assert old in text, f"{old!r} is not in the pipeline file"
            text = text.replace(old, new)
        self.file.write_text(text)

    def feed(self, generator: random.Random, *, files: int, rows_per_file: int) -> None:
        """Put more files into the source; what they hold is expected before it can be read."""
        incoming = self.root / "incoming"
        first = len(list(incoming.iterdir()))
        for number in range(first, first + files):
            rows = [self._row(generator, number * rows_per_file + index) for index in range(rows_per_file)]
            for row in rows:
                self.expected[str(row[1])][row] += 1
            _write_csv(incoming / f"part-{number:04d}.csv", rows)

    def assert_exact(self) -> None:
        """Every account and the database hold the source's rows as a multiset, and no staging is left."""
        for account in self.expected:
            assert_same(account, found=self._account_rows(account), expected=self.expected[account])
        everything = sum(self.expected.values(), Counter[Row]())
        assert_same("warehouse", found=database_rows(self.root / "warehouse.db"), expected=everything)
        left = list(self.staging())
        assert left == [], left

    def assert_verified(self) -> None:
        """`penstock verify` agrees, by its own reading."""
        done = penstock("verify", str(self.file), "--json")
        assert done.code == 0, str(done)
        assert done.last["ok"] is True

    def _row(self, generator: random.Random, index: int) -> Row:
        ident = index if generator.random() < 0.9 else generator.randrange(20)  # one row in ten is likely to be there twice
        padding = hashlib.sha512(str(ident).encode()).hexdigest() if self.wide else ""
        origin = list(self.expected)[ident % len(self.expected)]
        return (ident, origin, ident % 12 + 1, f"row {ident} ü'\"{padding}", ident / 4)

    def _account_rows(self, account: str) -> "Counter[Row]":
        if account not in self.stores:
            return account_rows(self.account(account))
        return sum((self.rows_in(account, name) for name in self.listing(account)), Counter[Row]())

    def staging(self) -> Iterator[Path]:
        """What nobody collected: uploads, and files of the staging places but for those that stay, identity and marker."""
        for store in (*self.stores.values(), *([] if self.spool is None else [self.spool])):
            yield from (Path(upload) for upload in store.uploads())
        if self.spool is not None:
            yield from (Path(key) for key in self.spool.listing() if not key.endswith(".id"))
        for place in (*(self.root / at / ".penstock-staging" for at in ("lake", ".")), self.root / "state" / "spool"):
            for directory, _, names in os.walk(place):
                yield from (Path(directory, name) for name in names if not _STAYS.fullmatch(name))


def make_world(
    root: Path,
    *,
    files: int,
    rows_per_file: int,
    seed: int,
    per_trigger: int = 2,
    master: str = "local[2]",
    extra: str = "",
    wide: bool = False,
    accounts: Sequence[str] = ACCOUNTS,
    stores: "Mapping[str, tuple[Place, Outside]] | None" = None,
    spool: "tuple[Place, Outside] | None" = None,
) -> World:
    """A world with `files` CSV files; some rows are equal, so only a multiset comparison tells lost from doubled."""
    print(f"world seed {seed}")
    (root / "incoming").mkdir(parents=True)
    places = ", ".join(f"{account}: ./lake/{account.lower()}" for account in accounts)
    text = PIPELINE.format(master=master, schema=SCHEMA, files=per_trigger, accounts=places, extra=extra)
    (root / "pipeline.yaml").write_text(text)
    outside = {account: seen for account, (_, seen) in (stores or {}).items()}
    world = World(root, {account: Counter[Row]() for account in accounts}, wide, outside, None if spool is None else spool[1])
    for account, (place, _) in (stores or {}).items():
        world.rewrite((f"{account}: ./lake/{account.lower()}", f"{account}: {place.written}"))
    if spool is not None:
        world.rewrite(("trigger:", f"spool: {spool[0].written}\ntrigger:"))
    world.feed(random.Random(seed), files=files, rows_per_file=rows_per_file)
    return world


def _write_csv(path: Path, rows: Sequence[Row]) -> None:
    hidden = path.with_name("." + path.name)
    with hidden.open("w", newline="") as file:
        writer = csv.writer(file, escapechar="\\", doublequote=False, quoting=csv.QUOTE_ALL)
        writer.writerow(["id", "origin", "month", "payload", "amount"])
        writer.writerows(rows)
    hidden.rename(path)


def account_rows(root: Path) -> "Counter[Row]":
    """What a reader who lists the directory finds, read by pyarrow and not by Penstock."""
    if not root.exists():
        return Counter()
    table = ds.dataset(root, format="parquet", partitioning=ds.partitioning(pa.schema([("month", pa.int32())]), flavor="hive"))
    return rows_of(table.to_table())


def file_rows(path: Path) -> "Counter[Row]":
    """The rows of one file of an account, its partition taken from the path."""
    return parquet_rows(path, path.as_posix())


def parquet_rows(file: "Path | io.BytesIO", name: str) -> "Counter[Row]":
    """The rows of a Parquet file, its partition taken from its name."""
    month = int(name.split("/")[-2].removeprefix("month="))
    table = pq.ParquetFile(file).read()
    return rows_of(table.append_column("month", pa.array([month] * table.num_rows, pa.int32())))


def rows_of(table: pa.Table) -> "Counter[Row]":
    columns = [table.column(name).to_pylist() for name in ("id", "origin", "month", "payload", "amount")]
    return Counter(zip(*columns, strict=True))


def database_rows(path: Path) -> "Counter[Row]":
    """The rows of the SQLite table."""
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as connection:
        found = Counter(connection.execute("SELECT id, origin, month, payload, amount FROM flights"))
    connection.close()
    return found


def assert_same(where: str, *, found: "Counter[Row]", expected: "Counter[Row]") -> None:
    lost, doubled = expected - found, found - expected
    assert not lost, f"{where}: {lost.total()} rows lost, for example {next(iter(lost))}"
    assert not doubled, f"{where}: {doubled.total()} rows too many, for example {next(iter(doubled))}"
