"""Maps the account names that Spark routed rows to, to the numbers of the sink's accounts."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import StageFailed
from penstock.sink.parquet.settings import WriteSettings

_SHOWN = 60


class Router:
    """Maps each row to the number of its account in `settings.accounts`."""

    def __init__(self, settings: WriteSettings) -> None:
        self._settings = settings
        self._names = pa.array(settings.accounts, pa.string())

    def numbers(self, accounts: "pa.ChunkedArray | None") -> "npt.NDArray[np.int64] | None":
        """Return the account of each row, None if all go to the only one. Raises StageFailed for rows that have none."""
        if accounts is None:
            return None
        found = pc.index_in(accounts, value_set=self._names)
        if found.null_count == 0:
            return np.asarray(found, dtype=np.int64)
        if self._settings.unrouted is None:
            raise self._unrouted(accounts, found)
        return np.asarray(pc.fill_null(found, self._settings.accounts.index(self._settings.unrouted)), dtype=np.int64)

    def _unrouted(self, accounts: "pa.ChunkedArray", found: "pa.ChunkedArray") -> StageFailed:
        strange = accounts.filter(pc.is_null(found))
        name = strange[0].as_py()
        shown = "null" if name is None else repr(name[:_SHOWN])
        rows = f"{len(strange)} rows route" if len(strange) > 1 else "A row routes"
        return StageFailed(
            f"{rows} to the account {shown}, but sink {self._settings.sink!r} has {', '.join(self._settings.accounts)}.",
            remedy="Correct the route, add the account, or let `unrouted` name an account that takes such rows.",
        )
