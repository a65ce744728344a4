"""All mutants. Each bug has at least one.

A mutant survives if its tests pass: the suite has a hole then, and the missing test belongs into the layer that should have seen
it. One whose text is not found any more is planted anew in the line that carries the guarantee now.
"""

from tests.mutation.mutants_of_accounts import MUTANTS_OF_ACCOUNTS
from tests.mutation.mutants_of_alerts import MUTANTS_OF_ALERTS
from tests.mutation.mutants_of_backfill import MUTANTS_OF_BACKFILL
from tests.mutation.mutants_of_cassandra import MUTANTS_OF_CASSANDRA
from tests.mutation.mutants_of_chains import MUTANTS_OF_CHAINS
from tests.mutation.mutants_of_changes import MUTANTS_OF_CHANGES
from tests.mutation.mutants_of_checkpoints import MUTANTS_OF_CHECKPOINTS
from tests.mutation.mutants_of_commit import MUTANTS_OF_COMMIT
from tests.mutation.mutants_of_delta import MUTANTS_OF_DELTA
from tests.mutation.mutants_of_doors import MUTANTS_OF_DOORS
from tests.mutation.mutants_of_duckdb import MUTANTS_OF_DUCKDB
from tests.mutation.mutants_of_encodings import MUTANTS_OF_ENCODINGS
from tests.mutation.mutants_of_exports import MUTANTS_OF_EXPORTS
from tests.mutation.mutants_of_history import MUTANTS_OF_HISTORY
from tests.mutation.mutants_of_http import MUTANTS_OF_HTTP
from tests.mutation.mutants_of_iceberg import MUTANTS_OF_ICEBERG
from tests.mutation.mutants_of_identity import MUTANTS_OF_IDENTITY
from tests.mutation.mutants_of_journal_readers import MUTANTS_OF_JOURNAL_READERS
from tests.mutation.mutants_of_kafka import MUTANTS_OF_KAFKA
from tests.mutation.mutants_of_kafka_ends import MUTANTS_OF_KAFKA_ENDS
from tests.mutation.mutants_of_kafka_source import MUTANTS_OF_KAFKA_SOURCE
from tests.mutation.mutants_of_kinesis import MUTANTS_OF_KINESIS
from tests.mutation.mutants_of_kit import MUTANTS_OF_KIT
from tests.mutation.mutants_of_ledger import MUTANTS_OF_LEDGER
from tests.mutation.mutants_of_maintenance import MUTANTS_OF_MAINTENANCE
from tests.mutation.mutants_of_many_tables import MUTANTS_OF_MANY_TABLES
from tests.mutation.mutants_of_mysql import MUTANTS_OF_MYSQL
from tests.mutation.mutants_of_named_sources import MUTANTS_OF_NAMED_SOURCES
from tests.mutation.mutants_of_newer_rows import MUTANTS_OF_NEWER_ROWS
from tests.mutation.mutants_of_postgres import MUTANTS_OF_POSTGRES
from tests.mutation.mutants_of_preflight import MUTANTS_OF_PREFLIGHT
from tests.mutation.mutants_of_quoted_secrets import MUTANTS_OF_QUOTED_SECRETS
from tests.mutation.mutants_of_receivers import MUTANTS_OF_RECEIVERS
from tests.mutation.mutants_of_registry import MUTANTS_OF_REGISTRY
from tests.mutation.mutants_of_removal import MUTANTS_OF_REMOVAL
from tests.mutation.mutants_of_replay import MUTANTS_OF_REPLAY
from tests.mutation.mutants_of_rewind import MUTANTS_OF_REWIND
from tests.mutation.mutants_of_rules import MUTANTS_OF_RULES
from tests.mutation.mutants_of_run import MUTANTS_OF_RUN
from tests.mutation.mutants_of_savepoints import MUTANTS_OF_SAVEPOINTS
from tests.mutation.mutants_of_secrets import MUTANTS_OF_SECRETS
from tests.mutation.mutants_of_settings import MUTANTS_OF_SETTINGS
from tests.mutation.mutants_of_sinks import MUTANTS_OF_SINKS
from tests.mutation.mutants_of_state import MUTANTS_OF_STATE
from tests.mutation.mutants_of_stores import MUTANTS_OF_STORES
from tests.mutation.mutants_of_taking_over import MUTANTS_OF_TAKING_OVER
from tests.mutation.mutants_of_the_journal import MUTANTS_OF_THE_JOURNAL
from tests.mutation.mutants_of_verify import MUTANTS_OF_VERIFY
from tests.mutation.mutants_of_warehouses import MUTANTS_OF_WAREHOUSES
from tests.mutation.mutants_of_wider_types import MUTANTS_OF_WIDER_TYPES

_KINDS = (
    *(MUTANTS_OF_IDENTITY, MUTANTS_OF_ACCOUNTS, MUTANTS_OF_ENCODINGS),
    *(
        MUTANTS_OF_CHECKPOINTS,
        MUTANTS_OF_COMMIT,
        MUTANTS_OF_BACKFILL,
        MUTANTS_OF_REPLAY,
        MUTANTS_OF_DELTA,
        MUTANTS_OF_NAMED_SOURCES,
        MUTANTS_OF_NEWER_ROWS,
        MUTANTS_OF_HISTORY,
        MUTANTS_OF_DUCKDB,
        MUTANTS_OF_ICEBERG,
        MUTANTS_OF_LEDGER,
        MUTANTS_OF_MAINTENANCE,
        MUTANTS_OF_MANY_TABLES,
        MUTANTS_OF_MYSQL,
        MUTANTS_OF_POSTGRES,
        MUTANTS_OF_SINKS,
        MUTANTS_OF_WIDER_TYPES,
    ),
    *(MUTANTS_OF_THE_JOURNAL, MUTANTS_OF_RECEIVERS, MUTANTS_OF_JOURNAL_READERS, MUTANTS_OF_CHAINS),
    *(MUTANTS_OF_STORES, MUTANTS_OF_CASSANDRA, MUTANTS_OF_HTTP, MUTANTS_OF_KIT, MUTANTS_OF_WAREHOUSES),
    *(MUTANTS_OF_KAFKA, MUTANTS_OF_KAFKA_ENDS, MUTANTS_OF_KAFKA_SOURCE, MUTANTS_OF_KINESIS),
    *(
        MUTANTS_OF_REMOVAL,
        MUTANTS_OF_REWIND,
        MUTANTS_OF_SAVEPOINTS,
        MUTANTS_OF_CHANGES,
        MUTANTS_OF_REGISTRY,
        MUTANTS_OF_PREFLIGHT,
        MUTANTS_OF_RULES,
        MUTANTS_OF_RUN,
        MUTANTS_OF_DOORS,
        MUTANTS_OF_SETTINGS,
        MUTANTS_OF_TAKING_OVER,
        MUTANTS_OF_VERIFY,
    ),
    *(MUTANTS_OF_SECRETS, MUTANTS_OF_QUOTED_SECRETS, MUTANTS_OF_ALERTS, MUTANTS_OF_STATE, MUTANTS_OF_EXPORTS),
)

MUTANTS = tuple(sorted((mutant for kind in _KINDS for mutant in kind), key=lambda mutant: mutant.bug))
