"""A table that another pipeline fills as a source: its settings, and how far a reader of it is behind."""
