"""The ledger's store in single steps, observed by the history."""

from collections.abc import Iterator

from penstock.ledger.memory import MemoryStore
from penstock.testing.simulator.history import History
from penstock.testing.simulator.stepping import Stepper


class SteppedStore:
    """A `ConditionalStore` over the shared store, as one driver uses it."""

    location = "simulated"

    def __init__(self, shared: MemoryStore, history: History, stepper: Stepper) -> None:
        self._shared = shared
        self._history = history
        self._stepper = stepper

    def put_if_absent(self, key: str, data: bytes) -> bool:
        fault = self._stepper.before("put_if_absent", key)
        created = self._shared.put_if_absent(key, data)
        if created:
            self._history.created(key, data)
        if fault is not None:
            self._stepper.after(fault, "put_if_absent")
        return created

    def get(self, key: str) -> bytes | None:
        fault = self._stepper.before("get", key)
        data = self._shared.get(key)
        if fault is not None:
            self._stepper.after(fault, "get")
        return data

    def put(self, key: str, data: bytes) -> None:
        fault = self._stepper.before("put", key)
        self._history.overwritten(key)
        self._shared.put(key, data)
        if fault is not None:
            self._stepper.after(fault, "put")

    def delete(self, key: str) -> None:
        fault = self._stepper.before("delete", key)
        self._history.deleted(key)
        self._shared.delete(key)
        if fault is not None:
            self._stepper.after(fault, "delete")

    def keys(self, folder: str) -> Iterator[str]:
        fault = self._stepper.before("keys", folder)
        keys = self._shared.keys(folder)
        if fault is not None:
            self._stepper.after(fault, "keys")
        return keys

    def sweep(self) -> None:
        """Do nothing: puts in memory leave nothing behind."""

    def close(self) -> None:
        """Do nothing: nothing is open."""
