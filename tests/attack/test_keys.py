"""Rows that are told apart by key: which one counts, however alike the keys are, in one batch, over several, and at a replay."""

from collections import Counter

import pytest
from tests.attack.places import TABLES, pipelines
from tests.attack.reading import plain_rows

from penstock.errors import StageFailed

__all__ = ["pipelines"]

NAN = float("nan")
KEYS = {
    "string": {
        "plain": ("a", "b"),
        "case": ("a", "A"),
        "blank at the end": ("a", "a "),
        "blanks alone": ("", "  "),
        "tab at the end": ("a", "a\t"),
        "NUL": ("a", "a\0"),
        "accent": ("e", "é"),
        "composed": ("é", "e\u0301"),
        "sharp s": ("ß", "ss"),
        "width": ("a", "\uff41"),
        "ignorable": ("a", "a\u200d"),
        "emoji": ("\U0001f600", "\U0001f601"),
        "number": ("1", "01"),
        "long": ("x" * 250, "x" * 249 + "y"),
        "NULL": ("NULL", "null"),
        "none": (None, "a"),
    },
    "binary": {"empty": (b"", b"\0"), "zeros": (b"a", b"a\0"), "case": (b"a", b"A"), "blank": (b"a", b"a "), "none": (None, b"")},
    "double": {"zeros": (-0.0, 0.0), "NaN": (NAN, 1.0), "near": (0.1, 0.1 + 2**-56), "none": (None, 0.0)},
    "long": {"ends": (-(1 << 63), (1 << 63) - 1), "double": (1 << 53, (1 << 53) + 1)},
    "timestamp": {"neighbours": (0, 1), "before": (-1, 0)},
}
REFUSED = {
    "sqlite": {"none"},
    "duckdb": {"none"},
    "postgres": {"none", "NUL"},
    "mysql": {"none", "NaN"},
}


def settled(write, batches):
    """What the pages promise. Keys are compared as plain values."""
    if write == "replace":
        return batches[-1]
    shown = {}
    for row in (row for batch in batches for row in batch):
        if write == "upsert" or row[:2] not in shown:
            shown[row[:2]] = row
    return shown.values()


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("write", ["upsert", "insert_if_absent", "replace"])
@pytest.mark.parametrize("kind", TABLES)
def test_one_row_of_each_key_counts(pipelines, kind, write, key):
    keyed = {} if write == "replace" else {"key": ["case", "key"]}
    pipeline = pipelines(kind, columns={"case": "long", "key": key, "value": "long"}, write=write, **keyed)
    by_key = write != "replace"
    pairs = [(number, *pair) for number, (case, pair) in enumerate(KEYS[key].items()) if case not in REFUSED[kind]]
    for case in REFUSED[kind] & set(KEYS[key]) if by_key else ():
        assert isinstance(pipeline.offer([(99, of, 1) for of in KEYS[key][case]]), StageFailed), case
    batches = [
        [(number, of, value) for number, one, other in pairs for of, value in ((one, 1), (other, 2), (one, 3))],
        [(number, other, value) for number, _, other in pairs for value in (4, 5)],
        [(number, one, 6) for number, one, _ in pairs],
    ]
    pipeline.run(*batches[:2])
    pipeline.run(batches[2], is_dying=True)
    pipeline.recover()
    pipeline.run(again=2)
    ordered = [plain_rows(rows, rows.schema) for rows in map(pipeline.batch, batches)]
    assert pipeline.content() == Counter(settled(write, ordered))
    assert pipeline.verify().ok
