"""How a batch is cut into calls of one type each."""

from hypothesis import given
from hypothesis import strategies as st

from pillarbox.consume.runs import runs_of

Item = tuple[str, str | None, int]


def runs(items: list[Item]) -> list[list[Item]]:
    return runs_of(items, kind=lambda item: item[0], key=lambda item: item[1])


@given(st.lists(st.tuples(st.sampled_from("XYZ"), st.sampled_from(["a", "b", "c", None])), max_size=30))
def test_runs_are_of_one_type_lose_nothing_and_keep_the_order_of_each_key(pairs: list[tuple[str, str | None]]) -> None:
    items: list[Item] = [(kind, key, number) for number, (kind, key) in enumerate(pairs)]
    found = runs(items)
    assert all(len({kind for kind, _, _ in run}) == 1 for run in found)
    flat = [item for run in found for item in run]
    assert sorted(flat, key=lambda item: item[2]) == items
    for key in "abc":
        own = [number for _, its, number in flat if its == key]
        assert own == sorted(own)


def test_without_keys_there_is_one_run_per_type() -> None:
    items: list[Item] = [("XY"[n % 2], None, n) for n in range(10)]
    assert [run[0][0] for run in runs(items)] == ["X", "Y"]
