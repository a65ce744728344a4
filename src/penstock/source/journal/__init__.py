"""A journal as a source of Spark: a Python data source over the files that a receiver writes."""
