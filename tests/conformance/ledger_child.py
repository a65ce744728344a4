"""A driver that only appends: started, raced and killed by the conformance tests of the ledger.

`python ledger_child.py PLACE COUNT [PRUNE_AT]` appends COUNT entries at whatever the tail is, tells each one that was
acknowledged on a line of its own, and prunes everything below position PRUNE_AT once the tail is there.
"""

import sys

from penstock.commit.append import append_once
from penstock.core.model import Position
from penstock.errors import PenstockError
from penstock.ledger.open import open_ledger
from penstock.protocols import Ledger
from penstock.testing.entries import PIPELINE, decided_entry, opened_entry


def work(ledger: Ledger, *, count: int, prune_at: int | None) -> None:
    done = 0
    while done < count:
        tail = ledger.tail()
        entry = opened_entry() if tail is None else decided_entry(after=tail)
        if append_once(ledger, entry) is not None:
            continue
        done += 1
        print("acknowledged", entry.position, entry.nonce, flush=True)
        if prune_at is not None and entry.position >= prune_at:
            ledger.prune(below=Position(prune_at))


if __name__ == "__main__":
    opened = open_ledger(sys.argv[1], pipeline=PIPELINE)
    try:
        work(opened, count=int(sys.argv[2]), prune_at=int(sys.argv[3]) if len(sys.argv) > 3 else None)
    except PenstockError as error:
        print(f"error {type(error).__name__}: {error}", flush=True)
        sys.exit(error.exit_code)
    finally:
        opened.close()
