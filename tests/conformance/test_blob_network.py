"""Stores behind a network that fails: what comes out is exact, and nothing is left.

CI runs a seeded slice, and everything with PENSTOCK_SOAK_FAULTS=all; PENSTOCK_SEED replays a slice.
"""

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.conformance.object_rig import InlineRig, ObjectRig
from tests.seed import SEED
from tests.servers.fixtures import accounts_on, server
from tests.servers.proxy import KINDS, NOT_FOUND, Proxy, before

from penstock.blob import open_store
from penstock.errors import OutcomeUnknown, PenstockError
from penstock.testing.conformance.rig import require_equal
from penstock.testing.conformance.story import live, rows_of, verify

STEPS = {
    "az": {
        "part": lambda method, path: method == "PUT" and "comp=block&" in path,
        "completion": lambda method, path: method == "PUT" and "comp=blocklist" in path,
        "mark": lambda method, path: method == "PUT" and "/marks/" in path,
        "small file": lambda method, path: method == "PUT" and "/part-" in path,
    },
    "gs": {"completion": lambda method, path: method == "POST" and path.partition("?")[0].endswith("/compose")},
    "hdfs": {"completion": lambda method, path: method == "PUT" and "op=RENAME" in path and "/part-" in path},
    "s3": {
        "part": lambda method, path: method == "PUT" and "partNumber=" in path,
        "completion": lambda method, path: method == "POST" and "uploadId=" in path,
        "mark": lambda method, path: method == "PUT" and "/marks/" in path,
        "small file": lambda method, path: method == "PUT" and "/part-" in path,
    },
}
ENDPOINTS = {"az": "endpoint", "gs": "endpoint", "hdfs": "webhdfs", "s3": "endpoint"}
"""The option that says where the server is."""

TIMES = 2
CASES = [f"{kind}: {step}: {fault}" for kind, steps in STEPS.items() for step in steps for fault in KINDS]


EVERYTHING = os.environ.get("PENSTOCK_SOAK_FAULTS") == "all"
SLICE = 8


@contextmanager
def rig_behind(kind: str, directory: Path, rig: type[ObjectRig]) -> Iterator[tuple[Proxy, ObjectRig]]:
    """Two empty accounts on a server that only the reader reaches directly."""
    option = ENDPOINTS[kind]
    with before(server(kind).options[option]) as proxy:
        stores = accounts_on(EWR=kind, JFK=kind)
        path = server(kind).options[option].partition("://")[2].partition("/")[2]
        there = {option: f"{proxy.endpoint}/{path}" if path else proxy.endpoint}
        places = {name: replace(place, options={**place.options, **there}) for name, (place, _) in stores.items()}
        yield proxy, rig(directory, places, {name: seen for name, (_, seen) in stores.items()})


@pytest.mark.parametrize("case", CASES if EVERYTHING else random.Random(SEED).sample(CASES, SLICE))
def test_requests_that_fail_lose_nothing_and_double_nothing(tmp_path: Path, case: str) -> None:
    print(f"PENSTOCK_SEED={SEED}")
    kind, step, fault = case.split(": ")
    with rig_behind(kind, tmp_path, InlineRig if step == "small file" else ObjectRig) as (proxy, rig):
        live(rig, [0])
        proxy.arm(fault, STEPS[kind][step], times=TIMES)
        try:
            live(rig, [1])
        except PenstockError as told:
            print(f"told: {told}")
        assert proxy.hits == TIMES
        live(rig, [1, 2])
        require_equal(rig.read_back(), rig.settle([rows_of(number) for number in range(3)]))
        assert verify(rig).ok
        assert list(rig.leftovers()) == []


def test_a_part_that_may_have_been_appended_is_not_sent_to_another_namenode() -> None:
    """It would stand twice in a file that is decided afterwards."""
    (place, _) = accounts_on(twice="hdfs")["twice"]
    with before(place.options["webhdfs"]) as active, before(place.options["webhdfs"]) as other:
        active.through = True
        store = open_store(place.url, options={**place.options, "webhdfs": f"{active.endpoint},{other.endpoint}"})
        upload = store.begin("f", tag="t")
        store.put_part("f", upload, 0, b"one")
        active.arm("lost", lambda _, path: "op=APPEND" in path and "namenoderpcaddress" in path, times=1)
        with pytest.raises(OutcomeUnknown):
            store.put_part("f", upload, 1, b"two")
        assert active.hits == 1
        (pending,) = store.pending("")
        assert pending.size_bytes == 6


def test_parts_that_were_not_put_together_are_kept() -> None:
    """They may be all that there is of a decided file."""
    (place, _) = accounts_on(kept="gs")["kept"]
    with before(place.options["endpoint"]) as proxy:
        store = open_store(place.url, options={**place.options, "endpoint": proxy.endpoint})
        upload = store.begin("f", tag="t")
        parts = [store.put_part("f", upload, number, data) for number, data in enumerate([b"one", b"two"])]
        proxy.arm(NOT_FOUND, STEPS["gs"]["completion"], times=1)
        store.complete("f", upload, parts, tag="t")
        assert proxy.hits == 1
        assert store.head("f") is None
        assert store.is_pending("f", upload)
        store.complete("f", upload, parts, tag="t")
        assert store.get("f") == b"onetwo"
        assert list(store.pending("")) == []


def test_another_namenode_is_asked_where_one_is_not_reached() -> None:
    (place, _) = accounts_on(reached="hdfs")["reached"]
    with before(place.options["webhdfs"]) as gone:
        pass
    store = open_store(place.url, options={**place.options, "webhdfs": f"{gone.endpoint},{place.options['webhdfs']}"})
    upload = store.begin("f", tag="t")
    store.complete(
        "f", upload, [store.put_part("f", upload, number, data) for number, data in enumerate([b"one", b"two"])], tag="t"
    )
    assert store.get("f") == b"onetwo"
