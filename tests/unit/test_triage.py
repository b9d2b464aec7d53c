"""Crash loops: the culprit ends as dead, its neighbours are delivered."""

from pillarbox.relay.triage import MAX_CLAIMS, SUSPECT_CLAIMS, triage
from tests.unit.deliveries import delivery


def test_a_normal_batch_is_published_whole() -> None:
    batch = [delivery(n, claims=SUSPECT_CLAIMS - 1) for n in range(5)]
    assert triage(batch) == (batch, (), ())


def test_only_the_poison_event_dies_of_a_crash_loop_and_within_about_ten_crashes() -> None:
    poison, rows = 137, 1000
    claims = dict.fromkeys(range(rows), 0)
    dead: list[int] = []
    crashes = 0
    while claims:
        for n in claims:
            claims[n] += 1
        sorted_out = triage([delivery(n, claims=c) for n, c in claims.items()])
        for d in sorted_out.give_back:  # settled before anything is sent
            claims[d.key.id] -= 1
        for d in sorted_out.give_up:
            dead.append(d.key.id)
            del claims[d.key.id]
        publish = [d.key.id for d in sorted_out.publish]
        if poison in publish:
            crashes += 1
            continue
        for n in publish:
            del claims[n]
    assert dead == [poison]
    assert crashes <= MAX_CLAIMS + 1
