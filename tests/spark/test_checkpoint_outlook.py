"""Does Spark do what the outlook says? Every damage is done to a real checkpoint, and the query is started on it."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock.checkpoint.inspection import Next, inspect_checkpoint
from tests.fast_spark import FILE_MANAGER, FILES
from tests.spark.streams import numbers, put, run

BATCHES = 4
Damage = Callable[[Path], object]


@pytest.fixture(scope="module", autouse=True)
def _files(spark: SparkSession) -> Iterator[None]:
    """Spark's own way to its files, as users have it: the two differ in what they make of a checksum that does not fit."""
    spark.conf.unset(FILES)
    yield
    spark.conf.set(FILES, FILE_MANAGER)


@pytest.fixture(scope="module")
def world(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of four batches, one input file each, and a fifth file that nobody read yet."""
    root = tmp_path_factory.mktemp("outlook")
    for number in range(BATCHES):
        put(root / "in", f"{number}.csv", number)
    run(numbers(spark, root), root / "checkpoint", lambda rows, batch_id: rows.collect())
    put(root / "in", "new.csv", 99)
    return root


def remove(*names: str) -> Damage:
    def act(checkpoint: Path) -> None:
        for name in names:
            file = checkpoint / name
            for path in (file, file.parent / f".{file.name}.crc"):
                path.unlink(missing_ok=True)

    return act


def write(name: str, text: str, *, checked: bool = False) -> Damage:
    def act(checkpoint: Path) -> None:
        if not checked:
            remove(name)(checkpoint)
        (checkpoint / name).write_text(text)

    return act


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (remove("commits/3"), (Next.REPLAY, [3, 4])),
        (remove("commits/2", "commits/3"), (Next.SKIP, [3, 4])),
        (remove("commits/3", "offsets/3"), (Next.NEW, [3])),
        (remove("offsets/3"), (Next.REPEAT, [2])),
        (remove("offsets/2"), (Next.FAIL, [])),
        (remove("offsets/0", "offsets/1"), (Next.NEW, [4])),
        (remove("commits/0", "commits/1"), (Next.NEW, [4])),
        (remove("metadata"), (Next.FAIL, [])),
        (write("metadata", "{"), (Next.FAIL, [])),
        (write("offsets/3", "v1\n{"), (Next.FAIL, [])),
        (write("offsets/3", 'v1\n{}\n{"logOffset":3}', checked=True), (Next.NEW, [4])),
        (write("offsets/0", 'v1\n{}\n{"logOff'), (Next.NEW, [4])),
        (write("commits/3", "v1\n{"), (Next.FAIL, [])),
        (write("commits/0", "v1\n{"), (Next.NEW, [4])),
        (remove("sources/0/3"), (Next.FAIL, [])),
        (write("offsets/.4.5b.tmp", "v1"), (Next.NEW, [4])),
        (write("commits/notes.txt", "do not touch"), (Next.NEW, [4])),
    ],
)
def test_spark_does_what_the_outlook_says(
    spark: SparkSession, world: Path, tmp_path: Path, damage: Damage, expected: tuple[Next, list[int]]
) -> None:
    checkpoint = Path(shutil.copytree(world / "checkpoint", tmp_path / "c"))
    damage(checkpoint)
    next_, delivered = expected

    foreseen = inspect_checkpoint(str(checkpoint)).outlook
    seen: list[int] = []
    error = None
    try:
        run(numbers(spark, world), checkpoint, lambda rows, batch_id: (rows.collect(), seen.append(batch_id)))
    except (PySparkException, Py4JJavaError) as raised:
        error = raised

    assert foreseen.next is next_
    assert seen[:1] == ([] if foreseen.batch_id is None else [foreseen.batch_id])
    assert (error is not None) is (next_ in {Next.FAIL, Next.REPEAT})
    assert seen == delivered
