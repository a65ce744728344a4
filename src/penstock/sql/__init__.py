"""Access to database servers, shared by sinks and ledgers: URLs, table names, connections and errors."""
