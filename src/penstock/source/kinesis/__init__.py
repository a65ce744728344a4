"""A stream of Amazon Kinesis as a source of Spark: a Python data source over the API of AWS."""
