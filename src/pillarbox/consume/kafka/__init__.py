"""Reading Kafka topics in a consumer group; offsets are committed by hand, after the database.

``source`` is the face, ``opening`` looks at what there is before it subscribes, ``partitions`` keeps what is held and
how far each is finished, ``stash`` what came unasked, ``commits`` tells the group how far it is, ``sidetopics`` makes
and fills the topics for dead letters and retries, ``purging`` empties the latter, ``records`` reads what the client
gives, ``settings`` is the clients' configuration.
"""

from .source import KafkaSource

__all__ = ["KafkaSource"]
