"""Settings of what the state of a query can grow to before somebody should look at it."""

from typing import TYPE_CHECKING

from pydantic import Field

from penstock.spec.scalar import Size
from penstock.spec.settings import Settings


class StateLimits(Settings):
    """What there is for the state of the query. Nothing is stopped at a limit: `status`, `check` and an alert warn before it."""

    memory: Size | None = Field(
        default=None, description="Memory of all executors together for the state, such as `4GB`. Without it, nobody warns."
    )
    disk: Size | None = Field(
        default=None,
        description="Disk of all executors together for the tables of RocksDB, and for `penstock state` of the checkpoint's "
        "`state` directory.",
    )

    if TYPE_CHECKING:

        def __init__(self, *, memory: int | str | None = None, disk: int | str | None = None) -> None: ...
