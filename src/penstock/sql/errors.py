"""The errors of database servers by what they mean, each with what to do about it."""

from dataclasses import dataclass

from penstock.errors import Failed, PenstockError, Retryable

_STARTS = "and start again: what was decided is published then."


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerError:
    """What a server reported before COMMIT, when nothing was written. Each method returns the error to raise for one meaning.

    `kind`: the error's class where it repeats at every try. `server`, `user`: the words for them in messages.
    """

    place: str
    reason: str
    kind: type[Failed]
    server: str = "server"
    user: str = "user"

    def no_answer(self) -> PenstockError:
        """Return the error for a connection that broke or could not be made."""
        remedy = f"Start the {self.server} or mend the network, and try again."
        return Retryable(f"{self.place} does not answer: {self.reason}.", remedy=remedy)

    def locked(self, look_into: str) -> PenstockError:
        """Return the error for a lock that was not released in time; `look_into` shows who holds it."""
        message = f"Another session holds a lock in {self.place} that is needed: {self.reason}."
        return Retryable(message, remedy=f"Look into {look_into}, and try again.")

    def read_only(self, primary: str) -> PenstockError:
        """Return the error for a server that takes no writes, as only the `primary` does."""
        message = f"{self.place} cannot be written: {self.reason}."
        return Retryable(message, remedy=f"Name the {primary} in `url`, and try again.")

    def not_let_in(self, remedy: str) -> PenstockError:
        """Return the error for a login that is refused at every try."""
        return self.kind(f"The login at {self.place} fails: {self.reason}.", remedy=remedy).lacking("access")

    def full(self, what: str = "disk") -> PenstockError:
        """Return the error for a disk, or another `what`, that has no room for the rows."""
        return self.kind(f"The {what} of {self.place} is full: {self.reason}.", remedy=f"Make room {_STARTS}").lacking("room")

    def refused_row(self, remedy: str = "Drop the constraint or correct the table's rows,") -> PenstockError:
        """Return the error for a row that a constraint or the lack of a partition refuses."""
        return self.kind(f"The table in {self.place} refused a row: {self.reason}.", remedy=f"{remedy} {_STARTS}")

    def forbidden(self, remedy: str = "GRANT the privilege") -> PenstockError:
        """Return the error for a privilege that the user lacks."""
        message = f"The {self.user} lacks a privilege in {self.place}: {self.reason}."
        return self.kind(message, remedy=f"{remedy} {_STARTS}")

    def no_table(self) -> PenstockError:
        """Return the error for a table that is gone."""
        remedy = f"Rename it back or restore it from a backup {_STARTS}"
        return self.kind(f"{self.place} has no such table: {self.reason}.", remedy=remedy)

    def unusable(self) -> PenstockError:
        """Return the error for anything else that repeats at every try."""
        return self.kind(f"{self.place} cannot be used: {self.reason}.", remedy=f"Mend the cause {_STARTS}")
