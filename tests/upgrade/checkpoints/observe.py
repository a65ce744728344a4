"""Records in `observed.json` what the installed version of Spark does with damaged state.

`python -m tests.upgrade.checkpoints.observe` makes it. Each damage is done to a copy of a checkpoint of eight batches, and the
query is started on it with one more input file. Recorded is `same` (the rows of an undamaged checkpoint), `other rows`, or the
class of the error.
"""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession
from tests.upgrade.checkpoints.make import BATCHES, CASES, EVERYWHERE, HERE, SCRATCH, VERSION, local_session, put

Damage = Callable[[Path], object]


def newest(folder: Path, ending: str) -> Path:
    return max(folder.glob(f"*.{ending}"), key=lambda path: int(re.findall(r"\d+", path.name)[0]))


def with_checksum(path: Path) -> list[Path]:
    return [path, path.parent / f".{path.name}.crc"]


def remove(path: Path) -> None:
    for one in with_checksum(path):
        one.unlink(missing_ok=True)


def remove_all(folder: Path) -> None:
    for one in folder.glob("*.sst"):
        remove(one)


def flip(path: Path, *, checked: bool) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    if not checked:
        with_checksum(path)[1].unlink(missing_ok=True)


def rename_over(source: Path, target: Path) -> None:
    for one, other in zip(with_checksum(source), with_checksum(target), strict=True):
        if one.exists():
            shutil.copy(one, other)


P = "state/0/0"
OF_ALL: dict[str, Damage] = {
    "nothing": lambda root: None,
    "remove metadata of the operator": lambda root: remove(root / "state/0/_metadata/metadata"),
    "remove schema": lambda root: remove(root / P / "_metadata/schema"),
    "flip a bit of schema, checksum kept": lambda root: flip(root / P / "_metadata/schema", checked=True),
}
DAMAGES: dict[str, dict[str, Damage]] = {
    "aggregation": {
        **OF_ALL,
        "remove newest delta": lambda root: remove(newest(root / P, "delta")),
        "remove newest snapshot, deltas kept": lambda root: remove(newest(root / P, "snapshot")),
        "flip newest delta, checksum kept": lambda root: flip(newest(root / P, "delta"), checked=True),
        "flip newest delta, checksum removed": lambda root: flip(newest(root / P, "delta"), checked=False),
        "older delta over the newest snapshot's successor": lambda root: rename_over(root / P / "8.delta", root / P / "9.delta"),
        "newest snapshot as the next version": lambda root: rename_over(newest(root / P, "snapshot"), root / P / "9.snapshot"),
    },
    "rocksdb": {
        **OF_ALL,
        "remove newest zip": lambda root: remove(newest(root / P, "zip")),
        "flip newest zip, checksum kept": lambda root: flip(newest(root / P, "zip"), checked=True),
        "remove all tables": lambda root: remove_all(root / P / "SSTs"),
        "older zip over the newest": lambda root: rename_over(root / P / "7.zip", newest(root / P, "zip")),
    },
    "changelog": {
        **OF_ALL,
        "remove newest zip, changelogs kept": lambda root: remove(newest(root / P, "zip")),
        "remove newest changelog": lambda root: remove(newest(root / P, "changelog")),
    },
}


def outcome(spark: SparkSession, case: str, checkpoint: Path) -> object:
    rows: list[list[object]] = []
    frame = CASES[case][0](spark)
    writer = frame.writeStream.foreachBatch(lambda batch, _: rows.extend(list(row) for row in batch.collect()))
    try:
        writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()
    except Exception as error:  # noqa: BLE001 - whatever Spark raises is what is recorded
        found = re.findall(r"\[([A-Z_.0-9]+)\]|Caused by: ([\w.]+)|(\w+Exception)", str(error))
        return "fails: " + next((text for texts in found[1:] + found for text in texts if text), "?")
    return sorted(map(str, rows))


def main() -> None:
    spark = local_session()
    observed: dict[str, dict[str, object]] = {}
    for case, damages in DAMAGES.items():
        shutil.rmtree(SCRATCH, ignore_errors=True)
        SCRATCH.mkdir()
        for key, value in {**EVERYWHERE, "stateStore.maintenanceInterval": "1h", **CASES[case][1]}.items():
            spark.conf.set(f"spark.sql.streaming.{key}", value)
        with_all = outcome(spark, case, SCRATCH / "whole")
        assert isinstance(with_all, list), with_all
        put("a", BATCHES)
        observed[case] = {}
        for number, (name, damage) in enumerate(damages.items()):
            checkpoint = Path(shutil.copytree(SCRATCH / "whole", SCRATCH / str(number)))
            try:
                damage(checkpoint)
            except (OSError, ValueError):
                continue
            rows = outcome(spark, case, checkpoint)
            undamaged = observed[case].setdefault("rows", rows)
            observed[case][name] = rows if isinstance(rows, str) else "same" if rows == undamaged else "other rows"
    shutil.rmtree(SCRATCH)
    (HERE / "observed.json").write_text(json.dumps({f"Spark {VERSION}": observed}, indent=1) + "\n")
    spark.stop()


if __name__ == "__main__":
    main()
