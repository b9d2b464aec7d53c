"""The list of servers: a new one is a file beside this one and a line here."""

from services.kafka import Kafka
from services.mysql import mariadb, mariadb102, mysql9, mysql57
from services.mysqldb import MySQLdb
from services.nats import Nats
from services.place import Place
from services.postgres import Postgres
from services.rabbitmq import RabbitMQ
from services.server import Server


def servers(place: Place) -> list[Server]:
    """All of them, the slowest to start first."""
    return [
        Kafka(place),
        RabbitMQ(place),
        mysql9(place),
        mysql57(place),
        mariadb(place),
        mariadb102(place),
        Postgres(place),
        Nats(place),
        MySQLdb(place),
    ]
