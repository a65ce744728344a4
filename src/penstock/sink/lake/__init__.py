"""What all sinks of open table formats share: files staged as Parquet, and one commit of the table that shows them."""
