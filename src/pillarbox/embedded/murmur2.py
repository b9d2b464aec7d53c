"""The partition of a key, as Kafka's Java client and librdkafka's ``murmur2_random`` compute it.

A key therefore lands on the same partition number in the embedded log and in a Kafka topic of as many partitions.
The algorithm is MurmurHash2 by Austin Appleby (public domain) with the seed of Kafka's ``Utils.murmur2``.
"""

from __future__ import annotations

from functools import lru_cache

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The 32-bit hash of ``data``, unsigned."""
    length = len(data)
    h = _SEED ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        k = (k ^ (k >> 24)) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    if whole < length:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ (h >> 13)) * _M & _MASK
    return h ^ (h >> 15)


@lru_cache(maxsize=16_384)
def partition_of_key(key: str, partitions: int) -> int:
    """The partition, from 0, that ``key`` belongs to."""
    return (murmur2(key.encode("utf-8")) & 0x7FFFFFFF) % partitions
