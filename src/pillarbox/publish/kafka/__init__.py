"""Kafka: confluent-kafka with acks=all and idempotence, every delivery report awaited.

From the outside in: ``publisher`` is the face, ``flight`` one batch, ``sending`` hands it to the ``client``, ``topics``
asks the cluster about its health, ``verdicts`` says what error codes mean. For ordered publishing, ``ordered`` decides
what may be sent together, and ``priming`` where the broker will refuse a gap.
"""

from .publisher import KafkaPublisher

__all__ = ["KafkaPublisher"]
