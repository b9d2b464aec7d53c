"""The hash that other languages must reproduce."""

import pytest

from pillarbox.policy.lanes import PARTITIONS, lane_of, partition_of

VECTORS = [  # key, lane, partition of 16: also in docs/tables.md
    ("", 1_025_426_827_051_516_353, 1),
    ("1", 484_254_776_263_135_182, 14),
    ("order-7", 1_006_782_665_958_802_211, 3),
    ("Ångström", 415_757_005_686_951_278, 14),
    ("订单-42", 797_108_024_194_118_728, 8),
    ("🛒", 2_570_834_345_703_022, 14),
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
