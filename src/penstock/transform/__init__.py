"""From the sources' DataFrames to the one that is delivered."""
