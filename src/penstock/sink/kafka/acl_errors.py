"""The error about an ACL that the user of a Kafka sink lacks, by Kafka's name, with the command that grants it."""

from penstock.errors import Failed


def not_allowed(right: str, what: str, option: str) -> Failed:
    """Return the error for a missing right, with the command that grants it."""
    return Failed(f"The user of this sink lacks the right {right} on {what}.", remedy=f"{command(right, option)}.")


def command(right: str, option: str) -> str:
    """Return the command by which an administrator grants `right`."""
    return f"kafka-acls --add --allow-principal User:NAME --operation {right} {option}"
