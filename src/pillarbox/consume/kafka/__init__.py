"""Reading Kafka topics in a consumer group; offsets are committed by hand, after the database.

``source`` is the face, ``partitions`` keeps what is held and how far each is finished, ``commits`` tells it to the
group, ``sidetopics`` makes and fills the topics for dead letters and retries, ``purging`` empties the latter,
``records`` reads what the client gives, ``settings`` is the clients' configuration.
"""

from .source import KafkaSource

__all__ = ["KafkaSource"]
