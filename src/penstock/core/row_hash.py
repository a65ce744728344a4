"""Row hashes, vectorised, without Spark: the content digests of tasks, of the driver, and of `verify`.

`row_hashes` equals the value of `penstock.stage.row_hash_sql` for the same rows bit for bit. Both kinds of digest are Spark's
`xxhash64`: seed 42, folded over the columns from left to right. Nulls leave the seed unchanged, -0.0 is hashed as 0.0, and every
NaN as the same one. A map is hashed as `map_entries(map)`, the array of its key-value structs in stored order.

`RowDigest.XXHASH64_NULLS` also folds in words that say where nulls are, so that moving a value to another place changes the hash:

- after the columns, and after the fields of a struct that is not null: the exclusive or of `presence_masks` of those that are not
  null. The words depend on names only: a column that is null everywhere does not count, wherever it is added.
- after the elements of an array, or the entries of a map: `NULL_ELEMENT` + the index of each element, or value, that is null,
  then the number of elements, as an integer of 32 bits.
"""

import hashlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.model import DIGEST_MODULUS, NEWEST_ROW_DIGEST, RowDigest
from penstock.core.value_hash import (
    Fold,
    Selected,
    fold_of_dictionary,
    fold_of_values,
    hash_int,
    hash_long,
    is_of_bytes,
)
from penstock.core.xxh64 import Places, Words

Valid: TypeAlias = npt.NDArray[np.bool_]

SEED = np.uint64(42)
CHUNK_ROWS = 1 << 14
"""Rows hashed at a time: their words fit a core's cache."""
_PART_ROWS = 1 << 16
"""Rows of which the columns are looked at together."""

NULL_ELEMENT = 0x50656E73746F636B
"""A number unlike usual values, so that the index of a null does not collide with a value."""

_SKIPPED = RowDigest.XXHASH64


def row_hashes(rows: "pa.RecordBatch | pa.Table", row_digest: RowDigest = NEWEST_ROW_DIGEST) -> "pa.UInt64Array":
    """Return the 64-bit hash of each row, columns from left to right. Raises TypeError for an Arrow type that Spark lacks."""
    chunks = [
        fold(slice(start, start + CHUNK_ROWS), np.full(min(CHUNK_ROWS, part.num_rows - start), SEED, np.uint64))
        for part in _parts(rows)
        for fold in [_fold_of_fields(part.columns, tuple(part.schema.names), row_digest)]
        for start in range(0, part.num_rows, CHUNK_ROWS)
    ]
    return pa.array(np.concatenate(chunks) if chunks else np.empty(0, np.uint64), pa.uint64())


def digest(hashes: "pa.UInt64Array | pa.ChunkedArray | Words") -> int:
    """Return the content digest of a set of rows: the sum of their hashes modulo 2^64, in any order."""
    words = hashes if isinstance(hashes, np.ndarray) else np.asarray(hashes, dtype=np.uint64)
    return int(np.add.reduce(words, dtype=np.uint64)) % DIGEST_MODULUS


@lru_cache(maxsize=256)
def presence_masks(names: tuple[str, ...]) -> tuple[int, ...]:
    """Return a word of 63 bits for each name of a column or struct field, which stands for "it is not null".

    Names that differ only in case are one name; its second, third and further occurrences have words of their own.
    """
    lowered = [name.lower() for name in names]
    return tuple(_word(name, lowered[:place].count(name)) for place, name in enumerate(lowered))


def _word(name: str, before: int) -> int:
    hashed = hashlib.sha256(f"{before} {name}".encode("utf-8", "surrogatepass"))
    return int.from_bytes(hashed.digest()[:8], "big") >> 1


def _parts(rows: "pa.RecordBatch | pa.Table") -> "list[pa.RecordBatch]":
    if isinstance(rows, pa.Table):
        return list(rows.to_batches(max_chunksize=_PART_ROWS))
    return [rows.slice(start, _PART_ROWS) for start in range(0, rows.num_rows, _PART_ROWS)]


def _fold_of_fields(columns: "Sequence[pa.Array]", names: tuple[str, ...], row_digest: RowDigest) -> Fold:
    """Return what folds in the columns of a row or the fields of a struct, then which of them are not null."""
    folds, everywhere, somewhere = list[Fold](), 0, list[tuple[Valid, np.uint64]]()
    for column, word in zip(columns, presence_masks(names), strict=True):
        fold, valid = _fold_of_column(column, row_digest)
        folds.append(fold)
        if valid is None:
            everywhere ^= word
        else:
            somewhere.append((valid, np.uint64(word)))

    def fold_in(places: Selected, seeds: Words) -> Words:
        for fold in folds:
            seeds = fold(places, seeds)
        if row_digest is _SKIPPED:
            return seeds
        present = np.array([everywhere], np.uint64)
        for valid, word in somewhere:
            present = present ^ (valid[places] * word)
        return hash_long(present, seeds)

    return fold_in


def _fold_of_column(column: "pa.Array", row_digest: RowDigest) -> tuple[Fold, Valid | None]:
    """Return what hashes each value with its row's seed (a null keeps the seed), and which values are valid (None: all)."""
    if isinstance(column, pa.DictionaryArray):
        if is_of_bytes(column.dictionary):
            return _valid_only(fold_of_dictionary(column), column)
        column = column.dictionary_decode()
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if pa.types.is_null(column.type):
        return lambda _, seeds: seeds, np.zeros(len(column), np.bool_)
    return _valid_only(_fold_of_valid(column, row_digest), column)


def _valid_only(fold: Fold, column: "pa.Array") -> tuple[Fold, Valid | None]:
    if column.null_count == 0:
        return fold, None
    valid: Valid = np.asarray(column.is_valid())
    return lambda places, seeds: np.where(valid[places], fold(places, seeds), seeds), valid


def _fold_of_valid(column: "pa.Array", row_digest: RowDigest) -> Fold:
    if pa.types.is_struct(column.type):
        names = tuple(field.name for field in column.type)
        return _fold_of_fields([column.field(place) for place in range(len(names))], names, row_digest)
    if pa.types.is_map(column.type):
        return _fold_of_selected(column, lambda maps, seeds: _fold_map(maps, seeds, row_digest))
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type) or pa.types.is_fixed_size_list(column.type):
        return _fold_of_selected(column, lambda lists, seeds: _fold_elements(lists, [lists.values], seeds, row_digest))
    return fold_of_values(column)


def _fold_of_selected(column: "pa.Array", fold: Callable[[Any, Words], Words]) -> Fold:
    return lambda places, seeds: fold(column[places] if isinstance(places, slice) else column.take(pa.array(places)), seeds)


# --- lists and maps


def _fold_map(column: "pa.MapArray", seeds: Words, row_digest: RowDigest) -> Words:
    """Fold in key and value of each entry in turn. Keys are never null, so the values tell where nulls are."""
    items = pa.Array.from_buffers(
        pa.list_(column.type.item_field),
        len(column),
        column.buffers()[:2],
        null_count=column.null_count,
        offset=column.offset,
        children=[column.items],
    )
    return _fold_elements(items, [column.keys, column.items], seeds, row_digest)


def _fold_elements(column: "pa.ListArray", parts: "Sequence[pa.Array]", seeds: Words, row_digest: RowDigest) -> Words:
    """Fold in the elements of each row's list: the first elements of all rows together, then the second ones, and so on.

    The `parts` of an element (key and value of a map's entry) have the same index; only the last part may be null.
    """
    lengths: Places = np.asarray(pc.fill_null(pc.list_value_length(column), 0)).astype(np.int64)
    starts, parts = _own_elements(column, lengths, parts)
    order = np.argsort(-lengths, kind="stable")
    first, falling, folded = starts[order], lengths[order], seeds[order]
    folds = [_fold_of_column(part, row_digest)[0] for part in parts]
    for step, active in enumerate(_lists_longer_than(falling)):
        places = first[:active] + step
        for fold in folds:
            folded[:active] = fold(places, folded[:active])
    unsorted = np.empty_like(folded)
    unsorted[order] = folded
    return unsorted if row_digest is _SKIPPED else _fold_marks(parts[-1], starts, lengths, unsorted)


def _lists_longer_than(falling: Places) -> Sequence[int]:
    """Return how many lists, of `falling` lengths, have more than 0 elements, more than 1, and so on."""
    longest = int(falling[0]) if len(falling) else 0
    counts: list[int] = (len(falling) - np.searchsorted(falling[::-1], np.arange(longest), side="right")).tolist()
    return counts


def _fold_marks(elements: "pa.Array", starts: Places, lengths: Places, folded: Words) -> Words:
    """Fold in where `elements` are null, and then how many there are."""
    if elements.null_count:
        _fold_nulls(np.flatnonzero(np.asarray(elements.is_null())), starts, lengths, folded)
    return hash_int(lengths.astype(np.uint32), folded)


def _fold_nulls(nulls: Places, starts: Places, lengths: Places, folded: Words) -> None:
    """Fold in the first null element of every list, then the second, and so on. `nulls` are their ascending indices."""
    first = np.searchsorted(nulls, starts)
    counts = np.searchsorted(nulls, starts + lengths) - first
    for step in range(int(counts.max())):
        rows = np.flatnonzero(counts > step)
        places = nulls[first[rows] + step] - starts[rows]
        folded[rows] = hash_long(places.astype(np.uint64) + np.uint64(NULL_ELEMENT), folded[rows])


def _own_elements(column: "pa.ListArray", lengths: Places, parts: "Sequence[pa.Array]") -> "tuple[Places, Sequence[pa.Array]]":
    """Return where each list begins, and the parts of their elements alone.

    A slice of a column has the elements of all of it, and something may lie under a null list, which has no length.
    """
    starts, ends = _list_starts(column), np.cumsum(lengths)
    if len(starts) and starts[-1] + lengths[-1] - starts[0] == ends[-1]:
        return starts - starts[0], [part.slice(int(starts[0]), int(ends[-1])) for part in parts]
    own = ends - lengths
    places = pa.array(np.repeat(starts - own, lengths) + np.arange(lengths.sum()))
    return own, [part.take(places) for part in parts]


def _list_starts(column: "pa.ListArray") -> Places:
    if pa.types.is_fixed_size_list(column.type):
        starts: Places = np.arange(len(column), dtype=np.int64) + column.offset
        return starts * int(column.type.list_size)
    offsets: Places = np.asarray(column.offsets, dtype=np.int64)[: len(column)]
    return offsets
