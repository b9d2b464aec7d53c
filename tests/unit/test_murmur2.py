"""The partitioner of the embedded log is Kafka's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillarbox.embedded.murmur2 import murmur2, partition_of_key


@pytest.mark.parametrize(
    ("data", "signed"),
    [  # from UtilsTest.testMurmur2 of Apache Kafka
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_is_that_of_kafkas_own_tests(data: bytes, signed: int) -> None:
    assert murmur2(data) == signed % 2**32


@given(st.text(st.characters(exclude_categories=["Cs"])), st.integers(1, 1024))
def test_every_key_has_one_partition(key: str, partitions: int) -> None:
    assert 0 <= partition_of_key(key, partitions) < partitions
    assert partition_of_key(key, partitions) == partition_of_key(key, partitions)
