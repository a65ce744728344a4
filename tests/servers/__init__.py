"""Real servers of stores and databases: fetched and built by `make servers`, started and stopped by the tests.

A kind of server is a module with `install()`, which raises NotInstalledError where this machine cannot have it, and the context
manager `running(directory)`, which gives an object with `place(name)`: an empty account, or `database(name)`.
"""

from tests.servers import (
    az,
    cassandra,
    gs,
    hdfs,
    iceberg,
    kafka,
    kinesis,
    mosquitto,
    mysql,
    postgres,
    rabbitmq,
    redshift,
    registry,
    s3,
)

KINDS = {
    "az": az,
    "cassandra": cassandra,
    "gs": gs,
    "hdfs": hdfs,
    "iceberg": iceberg,
    "kafka": kafka,
    "kinesis": kinesis,
    "mosquitto": mosquitto,
    "mysql": mysql,
    "postgres": postgres,
    "rabbitmq": rabbitmq,
    "redshift": redshift,
    "registry": registry,
    "s3": s3,
}
