"""An Iceberg table as a sink: files written by tasks, one commit by the driver."""
