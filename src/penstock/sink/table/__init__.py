"""What all sinks into database tables share: marker, publication, verification, and nested values as JSON.

TableSink                       write modes, spool
└ DatabaseSink                  connections, check, tries after a conflict, verify
  ├ TransactionalSink           rows and marker in one transaction; the sink for any driver is one
  ├ CatalogSink                 prepares what the catalog declares; Cassandra's, without transactions, is one
  └ SqlSink                     both of these: a SQL database; what differs is its `SqlDialect`
    ├ ServedSink                a database on a server
    └ FileSink                  a database that is one file, SQLite or DuckDB
"""
