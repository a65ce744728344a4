"""Rows of a query's state: the look-up of a key, and the export as Parquet, by Spark's own reader of state. Needs Java."""

import json
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.types import ArrayType, DataType, MapType, NullType, StructType

from penstock.blob.url import hadoop_url, is_blob
from penstock.checkpoint.copying import copy_checkpoint
from penstock.checkpoint.files import open_files
from penstock.checkpoint.state_layout import OperatorLayout, state_layout
from penstock.core.model import Json, new_nonce
from penstock.errors import Failed, Refused, Usage
from penstock.run.assembly import DeliveryPlan
from penstock.spark.error import read_spark_failure
from penstock.support.filesystem_errors import translate_os_errors
from penstock.support.secret import scheme_only, scrub

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
JOIN = "symmetricHashJoin"
Side = Literal["left", "right"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChoice:
    """Which part of the state is read. `operator_id` None: the only one. `batch_id` None: after the newest committed batch.

    `side` is of a join, `variable` of `transformWithState`; `store` names a store of an operator that has several.
    """

    operator_id: int | None = None
    store: str | None = None
    side: Side | None = None
    variable: str | None = None
    batch_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StateRows:
    """What was found of a key: at most as many rows as were asked for, and whether there are more."""

    operator_id: int
    key: Mapping[str, str]
    rows: tuple[Mapping[str, Json], ...] = field(default=())
    more: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StateExport:
    """An export that is done: a directory with files of Parquet."""

    operator_id: int
    directory: str
    rows: int


def require_choice(plan: DeliveryPlan, *, choice: StateChoice, directory: str | Path | None) -> None:
    """Raise for a choice that cannot be read, and for the directory of an export that is no new one. Costs no start of Spark."""
    if directory is not None:
        _new_directory(directory)
    place = plan.settings.checkpoint
    _options(_chosen(state_layout(open_files(place.url, options=place.options)), choice), choice)


def find_rows(plan: DeliveryPlan, spark: SparkSession, *, choice: StateChoice, key: Mapping[str, str], limit: int) -> StateRows:
    """Return the state of a key, of which `key` gives some columns or all. Raises Usage, Failed."""
    with _state(plan, spark, choice) as (operator_id, frame):
        values = {name: F.lit(text).try_cast(_type_of(frame, name)) for name, text in key.items()}
        wanted = frame
        for name, value in values.items():
            wanted = wanted.where(F.col(f"key.{name}") == value)
        found = wanted.select(F.to_json(F.struct(*_columns(frame)), {"ignoreNullFields": "false"})).limit(limit + 1).collect()
        if not found:
            _require_values(spark, key, values, frame)
        rows = tuple(json.loads(row[0]) for row in found)
        return StateRows(operator_id=operator_id, key=key, rows=rows[:limit], more=len(rows) > limit)


def export_rows(plan: DeliveryPlan, spark: SparkSession, *, choice: StateChoice, directory: str | Path) -> StateExport:
    """Write the state as Parquet into the new directory `directory`, which is there as a whole or not at all.

    Raises Usage, Refused if there is something already, Failed.
    """
    target = _new_directory(directory)
    hidden = target.with_name(f".{target.name}-{new_nonce()}")
    with _state(plan, spark, choice) as (operator_id, frame):
        try:
            frame.select(*_columns(frame)).write.parquet(hidden.as_uri())
            rows = spark.read.parquet(hidden.as_uri()).count()
            with translate_os_errors(Failed, f"{directory} cannot be made", then=", then try again."):
                hidden.rename(target)
        finally:
            shutil.rmtree(hidden, ignore_errors=True)
    return StateExport(operator_id=operator_id, directory=str(directory), rows=rows)


def _new_directory(directory: str | Path) -> Path:
    if _URL.match(str(directory)):
        raise Usage(
            f"The export would go to {scheme_only(str(directory))}, expected a directory of this machine.",
            remedy="Name a directory, and copy it from there.",
        )
    target = Path(directory).absolute()
    if target.exists():
        raise Refused(f"There is something at {directory} already, and an export makes a new directory.", remedy="Name another.")
    return target


@contextmanager
def _state(plan: DeliveryPlan, spark: SparkSession, choice: StateChoice) -> Iterator[tuple[int, DataFrame]]:
    """Open the chosen part of the state, and translate what Spark says when it is read."""
    place = plan.settings.checkpoint
    files = open_files(place.url, options=place.options)
    operator = _chosen(state_layout(files), choice)
    options = _options(operator, choice)
    with _for_spark(plan) as url:
        try:
            yield operator.operator_id, spark.read.format("statestore").options(**options).load(url)
        except (PySparkException, Py4JError) as error:
            reason = read_spark_failure(scrub(str(error))).sentence
            raise Failed(
                f"Spark cannot read the state of operator {operator.operator_id} in {place.url}: {reason}",
                remedy="`penstock state FILE` lists what there is; `penstock checkpoint verify FILE` says what is damaged.",
            ) from error


@contextmanager
def _for_spark(plan: DeliveryPlan) -> Iterator[str]:
    """Yield where Spark reads the checkpoint: of a store that it may have no connector for, a copy on this machine."""
    place = plan.settings.checkpoint
    if not is_blob(place.url) or place.url.startswith("hdfs:"):
        yield hadoop_url(place.url)
        return
    with tempfile.TemporaryDirectory(prefix="penstock-state-") as directory:
        copy_checkpoint(open_files(place.url, options=place.options), open_files(directory))
        yield hadoop_url(directory)


def _chosen(operators: Sequence[OperatorLayout], choice: StateChoice) -> OperatorLayout:
    if not operators:
        raise Usage(
            "The checkpoint holds no state.", remedy="A query keeps state from its first batch on, if it has a stateful operator."
        )
    if choice.operator_id is None and len(operators) == 1:
        return operators[0]
    found = next((operator for operator in operators if operator.operator_id == choice.operator_id), None)
    if found is None:
        there = ", ".join(f"{operator.operator_id} ({operator.name or 'unknown'})" for operator in operators)
        wanted = "none was chosen" if choice.operator_id is None else f"{choice.operator_id} is none of them"
        raise Usage(f"The query has the stateful operators {there}, and {wanted}.", remedy="Choose one with `--operator N`.")
    return found


def _options(operator: OperatorLayout, choice: StateChoice) -> Mapping[str, str]:
    if operator.name == JOIN and choice.side is None and choice.store is None:
        raise Usage(f"Operator {operator.operator_id} is a join.", remedy="Choose one side with `--side left` or `--side right`.")
    if (operator.name or "").startswith("transformWithState") and choice.variable is None:
        names = ", ".join(each.name for store in operator.stores for each in store.variables)
        raise Usage(f"Operator {operator.operator_id} has the variables {names}.", remedy="Name one with `--variable NAME`.")
    given = {
        "operatorId": operator.operator_id,
        "storeName": choice.store,
        "joinSide": choice.side,
        "stateVarName": choice.variable,
        "batchId": choice.batch_id,
    }
    return {name: str(value) for name, value in given.items() if value is not None}


def _type_of(frame: DataFrame, name: str) -> DataType:
    """Return the type of a column of the keys, or of a field in it. Raises Usage unless it is one that a text can be cast to."""
    try:
        found = frame.select(f"key.{name}").schema[0].dataType
    except PySparkException:
        key = frame.schema["key"].dataType if "key" in frame.columns else None
        there = ", ".join(key.fieldNames()) if isinstance(key, StructType) else "none"
        raise Usage(
            f"The keys have no column {name}, but {there}.", remedy="Write `--key COLUMN=VALUE`, once for each."
        ) from None
    if isinstance(found, StructType):
        fields = " and ".join(f"{name}.{field}" for field in found.fieldNames())
        raise Usage(f"The column {name} of the keys has the fields {fields}.", remedy="Write `--key COLUMN.FIELD=VALUE`.")
    if isinstance(found, ArrayType | MapType):
        raise Usage(
            f"The column {name} of the keys is {found.simpleString()}.", remedy="Leave it out of `--key`, or use `--export`."
        )
    return found


def _require_values(spark: SparkSession, key: Mapping[str, str], values: Mapping[str, Column], frame: DataFrame) -> None:
    """Raise Usage if a value is none of its column's type: no row has such a key, and no row will."""
    if not values:
        return
    (row,) = spark.range(1).select(*(value.isNull() for value in values.values())).collect()
    for number, (name, text) in enumerate(key.items()):
        if row[number]:
            expected = _type_of(frame, name).simpleString()
            raise Usage(f"The column {name} of the keys is of type {expected}, found {text!r}.", remedy="Correct the value.")


def _columns(frame: DataFrame) -> list[Column]:
    """Return the columns without fields that are never anything but NULL, which no file of Parquet can hold."""
    found = list[Column]()
    for column in frame.schema:
        if not isinstance(column.dataType, StructType):
            found.append(F.col(column.name))
            continue
        names = [each.name for each in column.dataType if not isinstance(each.dataType, NullType)]
        if names:
            fields = [F.col(f"{column.name}.`{name}`") for name in names]
            found.append(F.struct(*fields).alias(column.name))
    return found
