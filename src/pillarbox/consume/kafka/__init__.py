"""Reading Kafka topics in a consumer group; offsets are committed by hand, after the database.

``source`` is the face, ``partitions`` keeps what is held and how far each is finished, ``deadtopics`` makes and fills
the dead-letter topics, ``settings`` is the clients' configuration.
"""

from .source import KafkaSource

__all__ = ["KafkaSource"]
