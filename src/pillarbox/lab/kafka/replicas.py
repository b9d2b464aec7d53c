"""What an acknowledgement is worth when the leader dies: acks 0, 1 and all, with frozen followers.

Two strikes on one cluster, followers frozen. *Early*: the leader is killed while they still count as in sync. *Late*:
it is killed after the cluster has taken them out, when it is the only replica in sync.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Final
from uuid import uuid4

from .cluster import BROKERS, Cluster
from .topics import Sending, length, places, sync, told, trial_topic, wait_for
from .trial import Setting, Sync, Trial

LEADER, *FOLLOWERS = BROKERS
_MOVE: Final = 30.0  # seconds for the cluster to take a silent broker out or to choose another leader
_QUESTIONS: Final = 1.0  # seconds, five times what the leader lets a follower's question wait
_UNCLEAN: Final = "unclean.leader.election.enable"
_WITHOUT: Final[Mapping[str, Setting]] = {"enable.idempotence": False, "message.timeout.ms": 60_000}
_WITH: Final[Mapping[str, Setting]] = {"acks": "all", "enable.idempotence": True, "message.timeout.ms": 60_000}
_EARLY: Final = "both followers are frozen, and the leader is killed before the cluster has noticed"
_LATE: Final = "both followers are frozen until they are out of the in-sync set, then the leader is killed"

ACKS_0: Final = Trial(
    id="K4",
    title="acks=0, the leader dies early",
    fault=_EARLY,
    why="The client does not wait for any answer: 'delivered' means that it was handed to the network.",
    expect_doubled="none",
    expect_gone="all",
    settings={**_WITHOUT, "acks": "0", "min.insync.replicas": 1},
)
ACKS_1: Final = Trial(
    id="K5",
    title="acks=1, the leader dies early",
    fault=_EARLY,
    why="The leader alone had it. A follower that counted as in sync, and had not fetched it yet, is the next leader.",
    expect_doubled="none",
    expect_gone="all",
    settings={**_WITHOUT, "acks": "1", "min.insync.replicas": 1},
)
ACKS_ALL: Final = Trial(
    id="K6",
    title="acks=all, the leader dies early",
    fault=_EARLY,
    why="Nothing is acknowledged while in-sync followers lack it, whatever min.insync.replicas is."
    " The client sends it again to the next leader.",
    expect_doubled="none",
    expect_gone="none",
    settings={**_WITH, "min.insync.replicas": 1},
)
ALONE: Final = Trial(
    id="K7",
    title="acks=all with min.insync.replicas=1, the leader dies late and comes back",
    fault=_LATE,
    why="The last in-sync replica acknowledges alone. Without it nobody may lead: the topic is away until it is back.",
    expect_doubled="none",
    expect_gone="none",
    settings={**_WITH, "min.insync.replicas": 1, _UNCLEAN: False},
)
ALONE_UNCLEAN: Final = Trial(
    id="K8",
    title="acks=all with min.insync.replicas=1, and a replica that was behind may lead",
    fault=_LATE,
    why="The last in-sync replica acknowledges alone, dies, and one that has nothing of it leads on.",
    expect_doubled="none",
    expect_gone="all",
    settings={**_WITH, "min.insync.replicas": 1, _UNCLEAN: True},
)
TWO: Final = Trial(
    id="K9",
    title="acks=all with min.insync.replicas=2, the leader dies late",
    fault=_LATE,
    why="One replica in sync is too few, and the leader refuses: it is still the sender's to send.",
    expect_doubled="none",
    expect_gone="none",
    expect_acknowledged="none",
    settings={**_WITH, "message.timeout.ms": 3_000, "min.insync.replicas": 2, _UNCLEAN: False},
)
EARLY: Final = (ACKS_0, ACKS_1, ACKS_ALL)
LATE: Final = (ALONE, ALONE_UNCLEAN, TWO)


@dataclass(slots=True)
class _Running:
    trial: Trial
    topic: str
    sending: Sending
    event_ids: list[str]
    sync: list[Sync] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def early(cluster: Cluster, events: int = 20) -> tuple[Trial, ...]:
    """Run :data:`EARLY` with one strike; the cluster is whole again afterwards."""
    begin = time.monotonic()
    with _running(cluster, EARLY, events) as trials:
        cluster.freeze(*FOLLOWERS)
        # A follower has asked already for what comes next. Thawed, it would find the answer in its socket, and have the
        # events of a leader that is dead by then. The leader answers with nothing after replica.fetch.wait.max.ms.
        time.sleep(_QUESTIONS)
        _send(trials)
        for one in trials[:2]:  # nobody has to wait for a follower
            one.sending.flush(5)
        trials[2].sending.flush(0.2)
        _look(cluster.address(LEADER), trials, "when it was sent")
        _note_open(trials)
        _lose_leader(cluster)
        others = _others(cluster)
        wait_for(lambda: all(sync(others, one.topic, "").leader in FOLLOWERS for one in trials), "a new leader", _MOVE)
        _look(others, trials, "after the leader's death")
        for one in trials:
            one.sending.flush(60)
        return _come_back(cluster, trials, begin)


def late(cluster: Cluster, events: int = 20) -> tuple[Trial, ...]:
    """Run :data:`LATE` with one strike; the cluster is whole again afterwards."""
    begin = time.monotonic()
    with _running(cluster, LATE, events) as trials:
        cluster.freeze(*FOLLOWERS)
        leader = cluster.address(LEADER)
        wait_for(lambda: all(sync(leader, one.topic, "").in_sync == (LEADER,) for one in trials), "one in sync", _MOVE)
        _send(trials)
        for one in trials:
            one.sending.flush(10)
        _look(leader, trials, "when it was sent")
        _note_open(trials)
        _lose_leader(cluster)
        others, unclean = _others(cluster), trials[LATE.index(ALONE_UNCLEAN)]
        wait_for(lambda: sync(others, unclean.topic, "").leader in FOLLOWERS, "a new leader", _MOVE)
        _look(others, trials, "after the leader's death")
        return _come_back(cluster, trials, begin)


@contextmanager
def _running(cluster: Cluster, trials: Sequence[Trial], events: int) -> Iterator[list[_Running]]:
    with ExitStack() as stack:
        running = []
        for trial in trials:
            config = {name: str(value).lower() for name, value in trial.settings.items() if name in _OF_THE_TOPIC}
            made = trial_topic(cluster.bootstrap, trial.id, replicas=BROKERS, config=config)
            topic = stack.enter_context(made)
            settings = {name: value for name, value in trial.settings.items() if name not in _OF_THE_TOPIC}
            # Bootstrapped from the leader: it is never sent to a broker that is frozen.
            sending = Sending(cluster.address(LEADER), topic, settings)
            running.append(_Running(trial, topic, sending, [str(uuid4()) for _ in range(events)]))
        for one in running:
            one.sending.warm_up()
            wait_for(lambda topic=one.topic: length(cluster.bootstrap, topic) == 1, "the warm-up is replicated")  # type: ignore[misc]
        _look(cluster.bootstrap, running, "before")
        yield running


_OF_THE_TOPIC: Final = ("min.insync.replicas", _UNCLEAN)


def _send(trials: Sequence[_Running]) -> None:
    for one in trials:
        for event_id in one.event_ids:
            one.sending.send(event_id)


def _look(bootstrap: str, trials: Sequence[_Running], moment: str) -> None:
    for one in trials:
        one.sync.append(sync(bootstrap, one.topic, moment))


def _note_open(trials: Sequence[_Running]) -> None:
    for one in trials:
        refused = f", {len(one.sending.errors)} refused ({_errors(one)})" if one.sending.errors else ""
        one.notes.append(f"when the leader died: {len(one.sending.told)} acknowledged{refused}")


def _errors(one: _Running) -> str:
    return ", ".join(sorted(set(one.sending.errors.values())))


def _lose_leader(cluster: Cluster) -> None:
    cluster.kill(LEADER)
    cluster.thaw(*FOLLOWERS)


def _others(cluster: Cluster) -> str:
    return ",".join(map(cluster.address, FOLLOWERS))


def _come_back(cluster: Cluster, trials: Sequence[_Running], begin: float) -> tuple[Trial, ...]:
    """The dead leader returns and takes over what the others have; only then is counted what is left."""
    cluster.start(LEADER)
    whole = len(BROKERS)
    wait_for(
        lambda: all(len(sync(cluster.bootstrap, one.topic, "").in_sync) == whole for one in trials), "all in sync again"
    )
    _look(cluster.bootstrap, trials, "after its return")
    return tuple(
        replace(
            one.trial,
            events=told(one.event_ids, one.sending.told, places(cluster.bootstrap, one.topic)),
            sync=tuple(one.sync),
            notes=tuple(one.notes),
            seconds=time.monotonic() - begin,
        )
        for one in trials
    )
