"""What all sinks into database tables share: marker, publication, verification, and nested values as JSON.

TableSink                       write modes, spool
└ DatabaseSink                  connections, check, tries after a conflict, verify
  ├ TransactionalSink           rows and marker in one transaction; base of the dbapi sink
  ├ CatalogSink                 prepares a table by the database's catalog; base of the Cassandra sink
  └ SqlSink                     both of the above: a SQL database, whose peculiarities are in its `SqlTables`
    ├ ServedSink                a database on a server
    └ FileSink                  a database that is one file, SQLite or DuckDB
"""
