"""`format: penstock`: a table that one pipeline fills, streamed by another one, or by plain Spark."""
