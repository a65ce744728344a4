"""The transform: from the sources' DataFrames to the one that is delivered, and what its plan guarantees."""
