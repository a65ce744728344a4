"""What a database rolled back for the sake of another transaction."""


class Conflict(Exception):
    """Another transaction was in the way, and this one was rolled back: it is run again at once."""
