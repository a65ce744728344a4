"""What a run sends to others while it goes on, each in threads of its own: no receiver ever holds up a batch."""
