"""The hash that other languages must reproduce."""

import pytest

from pillarbox.policy.lanes import PARTITIONS, lane_of, partition_of

VECTORS = [  # key, lane, partition of 16: also in docs/tables.md
    ("", 955_282_973_525_019_424, 0),
    ("1", 886_263_699_231_969_848, 8),
    ("order-7", 925_299_600_881_086_215, 7),
    ("Ångström", 509_814_954_309_755_144, 8),
    ("订单-42", 686_577_173_227_721_891, 3),
    ("🛒", 1_037_347_790_451_121_502, 14),
]


@pytest.mark.parametrize(("key", "lane", "partition"), VECTORS)
def test_every_language_can_reproduce_the_lane_of_a_key(key: str, lane: int, partition: int) -> None:
    assert (lane_of(key), partition_of(lane_of(key))) == (lane, partition)


def test_keys_that_differ_only_in_case_are_different_lanes() -> None:
    assert lane_of("a") != lane_of("A")


def test_a_lane_fits_a_signed_64_bit_column() -> None:
    assert all(0 <= lane_of(str(n)) < 2**60 for n in range(1000))


def test_partitions_are_used_evenly() -> None:
    used = [partition_of(lane_of(f"order-{n}")) for n in range(16_000)]
    counts = [used.count(p) for p in range(PARTITIONS)]
    assert min(counts) > 800
    assert max(counts) < 1200
