"""The errors of database servers by what they mean, each with what to do about it."""

from dataclasses import dataclass

from penstock.errors import Failed, PenstockError, Retryable

_STARTS = "and start again: what was decided is published then."


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerError:
    """An error before COMMIT, when nothing was written. `kind` is raised where it repeats at every try.

    `server` and `user`: what people call them where the database is used.
    """

    place: str
    reason: str
    kind: type[Failed]
    server: str = "server"
    user: str = "user"

    def no_answer(self) -> PenstockError:
        """The connection broke, or none could be made."""
        remedy = f"Start the {self.server} or mend the network, and try again."
        return Retryable(f"{self.place} does not answer: {self.reason}.", remedy=remedy)

    def locked(self, look_into: str) -> PenstockError:
        """A lock was not released in time; `look_into` shows who holds it."""
        message = f"Another session holds a lock in {self.place} that is needed: {self.reason}."
        return Retryable(message, remedy=f"Look into {look_into}, and try again.")

    def read_only(self, primary: str) -> PenstockError:
        """Only the `primary` takes writes."""
        message = f"{self.place} cannot be written: {self.reason}."
        return Retryable(message, remedy=f"Name the {primary} in `url`, and try again.")

    def not_let_in(self, remedy: str) -> PenstockError:
        """The login is refused, at every try."""
        return self.kind(f"{self.place} does not let us in: {self.reason}.", remedy=remedy)

    def full(self, what: str = "disk") -> PenstockError:
        """There is no room for the rows."""
        return self.kind(f"The {what} of {self.place} is full: {self.reason}.", remedy=f"Make room {_STARTS}")

    def refused_row(self, remedy: str = "Drop the constraint or correct the table's rows,") -> PenstockError:
        """A constraint or a partition does not take a row."""
        return self.kind(f"The table in {self.place} refused a row: {self.reason}.", remedy=f"{remedy} {_STARTS}")

    def forbidden(self, remedy: str = "GRANT it") -> PenstockError:
        """The user lacks a privilege."""
        message = f"The {self.user} may not do that in {self.place}: {self.reason}."
        return self.kind(message, remedy=f"{remedy} {_STARTS}")

    def no_table(self) -> PenstockError:
        """The table is gone."""
        remedy = f"Rename it back or restore it from a backup {_STARTS}"
        return self.kind(f"{self.place} has no such table: {self.reason}.", remedy=remedy)

    def unusable(self) -> PenstockError:
        """Whatever else repeats at every try."""
        return self.kind(f"{self.place} cannot be used: {self.reason}.", remedy=f"Mend that {_STARTS}")
