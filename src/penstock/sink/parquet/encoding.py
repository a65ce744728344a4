"""Parquet encodings: what a user sets, which fits which type, and what an attempt's files are written with.

A path names a column as Parquet does: `id`, `address.city`, `tags.list.element`, `attributes.key_value.value`.

With `column_encoding: auto` the encodings are chosen from the first rows. Arrow by itself tries a dictionary on every column.
Where values hardly repeat, that takes most of the time of writing them, and the first values go into a dictionary for nothing.
Here a column gets a dictionary if its values repeat, `delta_binary_packed` if whole numbers or times lie close to those before
them, else `plain`. In doubt it gets a dictionary: the file is what Arrow would have written. `byte_stream_split` is never chosen:
the vectorised reader of Spark 4.0 does not read it.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from math import ceil, expm1, log1p, log2
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import Usage

AUTO, DICTIONARY, PLAIN = "auto", "dictionary", "plain"
DELTA_BINARY_PACKED, BYTE_STREAM_SPLIT = "delta_binary_packed", "byte_stream_split"
DELTA_BYTE_ARRAY, DELTA_LENGTH_BYTE_ARRAY = "delta_byte_array", "delta_length_byte_array"

DICTIONARY_PAGESIZE_LIMIT: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Encodings:
    """Encodings of columns: `default` for all except those in `columns`, which maps paths to encodings.

    As a user sets them, or as an attempt's files are written: then no column is `auto`, and `columns` has all paths or none.
    """

    default: str = AUTO
    columns: Mapping[str, str] = field(default_factory=dict)
    dictionary_pagesize_limit_bytes: int = DICTIONARY_PAGESIZE_LIMIT

    def writer_options(self) -> Mapping[str, object]:
        """Return the keyword arguments of pyarrow's `ParquetWriter`."""
        others = {path: name.upper() for path, name in self.columns.items() if name not in {DICTIONARY, PLAIN}}
        listed = [path for path, name in self.columns.items() if name == DICTIONARY]
        return {
            "use_dictionary": listed if self.columns else self.default == DICTIONARY,
            "column_encoding": others or None,
            "dictionary_pagesize_limit": self.dictionary_pagesize_limit_bytes,
        }


def leaf_columns(path: str, column: "pa.Array") -> "Iterator[tuple[str, pa.Array]]":
    """Yield the leaf columns that Parquet makes of `column`, with their paths. Of a list, it yields the elements of all rows."""
    kind = column.type
    if pa.types.is_struct(kind):
        for inner, values in zip(kind, column.flatten(), strict=True):
            yield from leaf_columns(f"{path}.{inner.name}", values)
    elif pa.types.is_map(kind):
        yield from leaf_columns(f"{path}.key_value.key", column.keys)
        yield from leaf_columns(f"{path}.key_value.value", column.items)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield from leaf_columns(f"{path}.list.element", column.flatten())
    else:
        yield path, column


def fitting(kind: "pa.DataType") -> tuple[str, ...]:
    """Return the encodings that a user may choose for a leaf column of this type.

    DuckDB and Spark's vectorised reader read all of them, but that of Spark 4.0 cannot read BYTE_STREAM_SPLIT.
    """
    if pa.types.is_boolean(kind):
        return (PLAIN,)
    if is_whole_number(kind):
        return (DICTIONARY, PLAIN, DELTA_BINARY_PACKED)
    if pa.types.is_float32(kind) or pa.types.is_float64(kind):
        return (DICTIONARY, PLAIN, BYTE_STREAM_SPLIT)
    if is_text(kind):
        return (DICTIONARY, PLAIN, DELTA_BYTE_ARRAY, DELTA_LENGTH_BYTE_ARRAY)
    return (DICTIONARY, PLAIN)


def is_whole_number(kind: "pa.DataType") -> bool:
    """Return whether Parquet stores the type as INT32 or INT64."""
    return bool(pa.types.is_signed_integer(kind) or pa.types.is_date32(kind) or is_time(kind))


def is_time(kind: "pa.DataType") -> bool:
    """Return whether the type is a timestamp, a time or a duration."""
    return bool(pa.types.is_timestamp(kind) or pa.types.is_time(kind) or pa.types.is_duration(kind))


def is_text(kind: "pa.DataType") -> bool:
    """Return whether the type is text or bytes of any length."""
    is_string = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return bool(is_string or pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def require_encodable(settings: Encodings, stored: "pa.Schema") -> None:
    """Raise Usage for a path that is not in the schema `stored`, and for an encoding that does not fit the column's type."""
    kinds: dict[str, list[pa.DataType]] = {}
    for each in stored:
        for path, values in leaf_columns(each.name, pa.array([], each.type)):
            kinds.setdefault(path, []).append(values.type)
    for path, name in settings.columns.items():
        if path not in kinds:
            raise _unknown_path(path, list(kinds))
        for kind in kinds[path]:
            if name not in fitting(kind):
                raise Usage(
                    f"column_encoding.{path} is {name}, but the column has the type {kind}.",
                    remedy=f"Use one of {', '.join(fitting(kind))}, or leave the column out.",
                )


def _unknown_path(path: str, known: list[str]) -> Usage:
    below = [each for each in known if each.startswith(f"{path}.")]
    shown = ", ".join((below or known)[:20]) + (", …" if len(below or known) > 20 else "")
    return Usage(
        f"column_encoding names {path!r}, which is no column of the files.",
        remedy=f"Name {'what it consists of' if below else 'a column that is no partition'}: {shown}.",
    )


_GLANCE, _LOOK, _FIRST = 256, 1024, 512
"""Rows in the samples: of all columns; of columns whose values hardly repeat there; the first of these, for differences."""

_SAMPLE_BYTES: Final = 256 * 1024
"""Size of the sample of a text column; of longer texts fewer are taken."""

_ENOUGH = 32
_FEW_ROWS, _FEW_VALUES, _MANY_COLUMNS = 4096, 1_000_000, 100
_BLOCK, _MINIBLOCKS, _BLOCK_HEAD_BYTES = 128, 4, 10
_HALVINGS: Final = 20


def choose_encodings(rows: "pa.Table", settings: Encodings) -> Encodings:
    """Return the encodings for files that begin with `rows`, at least one.

    Takes 20 to 100 microseconds per column. Few rows get only the first, small sample, and none at all if they have many columns:
    such rows are written as fast as they are sampled.
    """
    few = len(rows) < _FEW_ROWS and len(rows) * rows.num_columns < _FEW_VALUES
    default = DICTIONARY if settings.default == AUTO and few and rows.num_columns > _MANY_COLUMNS else settings.default
    limit = settings.dictionary_pagesize_limit_bytes
    if default != AUTO and not settings.columns:
        return Encodings(default=default, dictionary_pagesize_limit_bytes=limit)
    glance = list(_leaves(_spread(rows, _GLANCE) if default == AUTO else rows[:1], of=rows))
    times = Counter(leaf.path for leaf in glance)
    chosen = dict[str, str]()
    unclear = list[_Leaf]()
    for leaf in glance:
        encoding = settings.columns.get(leaf.path, DICTIONARY if times[leaf.path] > 1 else default)
        if encoding == AUTO:
            encoding, is_clear = _at_a_glance(leaf)
            unclear += [] if is_clear or few else [leaf]
        chosen[leaf.path] = encoding
    if unclear:
        chosen.update(_after_a_look(rows, unclear))
    return Encodings(default=DICTIONARY, columns=chosen, dictionary_pagesize_limit_bytes=limit)


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A leaf column of `column`. `values`: a sample without nulls, from about `among` such values in all rows."""

    column: str
    path: str
    values: "pa.Array"
    among: float


def _leaves(sample: "pa.Table", *, of: "pa.Table") -> Iterator[_Leaf]:
    share = len(of) / len(sample)
    for name, column in zip(sample.column_names, sample.columns, strict=True):
        for path, values in leaf_columns(name, _one_array(column)):
            own = values.drop_null() if values.null_count else values
            yield _Leaf(name, path, _bounded(own), len(own) * share)


def _at_a_glance(leaf: _Leaf) -> tuple[str, bool]:
    """Return the encoding, and whether more values would hardly change it."""
    if pa.types.is_boolean(leaf.values.type):
        return PLAIN, True
    plain_bytes = _plain_bytes(leaf)
    distinct = len(leaf.values.unique())
    if plain_bytes is None or len(leaf.values) == 0 or (len(leaf.values) >= _ENOUGH and 2 * distinct <= len(leaf.values)):
        return DICTIONARY, True
    if _dictionary_bytes(leaf, distinct, plain_bytes) < plain_bytes:
        return DICTIONARY, not is_whole_number(leaf.values.type)
    return PLAIN, False


def _after_a_look(rows: "pa.Table", leaves: list[_Leaf]) -> Iterator[tuple[str, str]]:
    """Yield path and encoding from more values, which also tell whether differences take fewer bytes still."""
    paths = {leaf.path for leaf in leaves}
    selected = rows.select(list(dict.fromkeys(leaf.column for leaf in leaves)))
    first = {leaf.path: leaf.values for leaf in _leaves(selected[:_FIRST], of=rows)}
    for leaf in _leaves(_spread(selected, _LOOK), of=rows):
        plain_bytes = _plain_bytes(leaf)
        if leaf.path not in paths:
            continue
        if plain_bytes is None or len(leaf.values) == 0:
            yield leaf.path, DICTIONARY
            continue
        distinct = len(leaf.values.unique())
        dictionary_bytes = _dictionary_bytes(leaf, distinct, plain_bytes)
        if is_whole_number(leaf.values.type) and _is_smaller_as_delta(first[leaf.path], plain_bytes, dictionary_bytes):
            yield leaf.path, DELTA_BINARY_PACKED
        else:
            yield leaf.path, DICTIONARY if dictionary_bytes < plain_bytes else PLAIN


# --- bytes for each value


def _plain_bytes(leaf: _Leaf) -> float | None:
    """Return the bytes per value in PLAIN, None for a type that is not known here."""
    kind = leaf.values.type
    if is_text(kind):
        return float(4 + leaf.values.nbytes / max(len(leaf.values), 1))
    if is_whole_number(kind):
        return float(max(4, kind.bit_width // 8))
    if pa.types.is_floating(kind):
        return float(kind.bit_width // 8)
    if pa.types.is_decimal(kind):
        return float(ceil((kind.precision * log2(10) + 1) / 8))
    return None


def _dictionary_bytes(leaf: _Leaf, seen: int, plain_bytes: float) -> float:
    """Return the bytes per value with a dictionary: each distinct value once, and a number of enough bits for each value."""
    distinct = _estimated_distinct(seen, of=len(leaf.values), among=leaf.among)
    return distinct / leaf.among * plain_bytes + ceil(log2(max(distinct, 2))) / 8


def _estimated_distinct(seen: int, *, of: int, among: float) -> float:
    """Estimate how many distinct values `among` values have, from `seen` distinct ones in a sample `of` so many values.

    All are taken to be equally frequent.
    """
    if seen >= of or among <= of:
        return among if seen >= of else float(seen)
    low, high = float(seen), among
    unseen = log1p(-of / among) * among
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if -middle * expm1(unseen / middle) < seen else (low, middle)
    return high


def _is_smaller_as_delta(first: "pa.Array", plain_bytes: float, dictionary_bytes: float) -> bool:
    """Return whether differences take fewer bytes than a dictionary, and than plain values after compression.

    Plain values are compressed to compare them, because numbers have many bytes in common.
    """
    if len(first) < _ENOUGH:
        return False
    numbers = np.asarray(first[:_FIRST].cast(pa.int32() if plain_bytes == 4 else pa.int64()))
    delta_bytes = _delta_bytes(numbers.astype(np.int64, copy=False))
    if delta_bytes >= dictionary_bytes:
        return False
    if delta_bytes <= plain_bytes / 8:
        return True
    return delta_bytes <= len(pa.Codec("zstd").compress(numbers.tobytes(), asbytes=True)) / len(numbers)


def _delta_bytes(numbers: "npt.NDArray[np.int64]") -> float:
    """Return the bytes per value: a miniblock is as wide as its largest difference minus the least of its block."""
    steps = np.diff(numbers)
    blocks = np.append(steps, np.full(-len(steps) % _BLOCK, steps[-1])).reshape(-1, _MINIBLOCKS, _BLOCK // _MINIBLOCKS)
    excess = (blocks.max(axis=2) - blocks.min(axis=(1, 2))[:, np.newaxis]).view(np.uint64)
    bits = np.frexp(excess.astype(np.float64))[1]
    return float(bits.mean()) / 8 + _BLOCK_HEAD_BYTES / _BLOCK


# --- samples


def _spread(rows: "pa.Table", count: int) -> "pa.Table":
    """Return one row of each of `count` stretches, at varying places: a period in the values must not look like repetition."""
    if len(rows) <= count:
        return rows
    places = ((np.arange(count) + _jitter(count)) * (len(rows) / count)).astype(np.int64)
    return rows.take(pa.array(np.unique(places)))


@cache
def _jitter(count: int) -> "npt.NDArray[np.float64]":
    return np.random.default_rng(0).random(count)


def _bounded(values: "pa.Array") -> "pa.Array":
    few = values[:_LOOK]
    if is_text(few.type) and few.nbytes > _SAMPLE_BYTES:
        return few[: max(_ENOUGH, len(few) * _SAMPLE_BYTES // few.nbytes)]
    return few


def _one_array(column: "pa.ChunkedArray") -> "pa.Array":
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks or [pa.array([], column.type)])
