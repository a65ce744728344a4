"""What all sinks into database tables share: marker, publication, verification, and nested values as JSON.

TableSink                       write modes, spool
└ DatabaseSink                  connections, check, tries after a conflict, verify
  ├ TransactionalSink           rows and marker in one transaction; the sink for any driver is one
  │ └ SqlSink                   a database on a server; what differs is its `Dialect`
  ├ PreparedSink                prepares step by step; Cassandra's, without transactions, is one
  └ FileSink                    both of these: a database that is one file, SQLite or DuckDB
"""
