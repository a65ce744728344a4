"""Opens the sources of a pipeline as streaming DataFrames."""
