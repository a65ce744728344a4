"""What a server of MySQL is set to for all sessions, changed for a while."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol


class _Reached(Protocol):
    def session(self) -> AbstractContextManager[Any]: ...


@contextmanager
def set_globally(there: _Reached, name: str, value: object) -> Iterator[None]:
    """`there.session()` is a superuser's."""
    with there.session() as admin:
        admin.execute(f"SELECT @@GLOBAL.{name}")
        [before] = admin.fetchone()
        admin.execute(f"SET GLOBAL {name} = %s", (value,))
        try:
            yield
        finally:
            admin.execute(f"SET GLOBAL {name} = %s", (before,))
