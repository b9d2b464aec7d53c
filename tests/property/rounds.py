"""One round: writers, relays and faults, all from one seed (but for the threads' own interleaving)."""

import time
import traceback
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Literal, NamedTuple, Protocol

from pillarbox.policy.retry import RetryPolicy
from pillarbox.relay.settings import RelaySettings
from tests.property.broker import Broker
from tests.property.checks import effects, unfinished, wrong
from tests.property.worlds import SqlWorld, World
from tests.property.writers import Writer

DEADLINE = 40.0

Kind = Literal["kill", "stall", "suspend", "lost answers", "cut", "stop", "join", "replay"]
KINDS: tuple[Kind, ...] = ("kill", "kill", "stall", "stall", "suspend", "lost answers", "cut", "stop", "join", "replay")


class Outcome(NamedTuple):
    """What a round came to."""

    seed: int
    wrong: list[str]
    faults: Counter[str]
    events: int
    arrivals: int
    history: list[str]
    seconds: float


class Alive(Protocol):
    """A relay at work, whichever way; what may happen to it happens a little later."""

    name: str
    error: BaseException | None

    @property
    def works(self) -> bool:
        """True unless it is dead, or has ended."""
        ...

    def wait(self) -> None:
        """Until it works."""
        ...

    def kill(self, after: int) -> None:
        """SIGKILL."""
        ...

    def sleep(self, after: int, seconds: float, dice: Random) -> Kind:
        """SIGSTOP, and CONT; returns which kind it is."""
        ...

    def lose_answers(self, count: int) -> None:
        """The database's, to what was committed."""
        ...

    def leave(self) -> None:
        """SIGTERM."""
        ...

    def end(self) -> Counter[str]:
        """Stop and join; a dead one, too. What it has seen, by kind."""
        ...


Hire = Callable[[World, Broker, Random, str, RelaySettings], Alive]


class Round:
    """Runs once."""

    def __init__(self, world: World, seed: int, broker: Broker, hire: Hire) -> None:
        self._world = world
        self._seed = seed
        self._random = Random(seed)
        self._broker = broker
        self._hire = hire
        self._living: list[Alive] = []
        self._all: list[Alive] = []
        self._faults: Counter[str] = Counter()
        self._history: list[str] = []
        self._began = time.monotonic()
        self._skips = self._random.random() < 0.2
        patient = self._random.random() < 0.3  # heads wait for so long that others' stalls end meanwhile
        self._settings = RelaySettings(
            lease=world.lease,
            broker_deadline=world.lease / 2.5,
            batch=self._random.choice((1, 3, 10, 50)),
            retry=RetryPolicy(0.5, 0.5, 6, False) if patient else RetryPolicy(0.01, 0.05, self._random.choice((2, 6))),
            poll_min=0.002,
            poll_max=0.05,
            due_interval=0.02,
            probe_interval=0.05,
            linger=0.1,
            on_failure="skip" if self._skips else "hold",
        )

    def run(self) -> Outcome:
        """The whole of it."""
        dice = self._random
        self._tell(f"{self._settings}")
        for _ in range(dice.randint(1, 3)):
            self._join()
        for one in self._living:  # that later ones come late, or never, is part of the play
            one.wait()
        keys = dice.choice((1, 2, 3, 3, 6))
        writers = [Writer(self._world, Random(dice.random()), keys, self._tell) for _ in range(dice.randint(2, 3))]
        threads = [writer.start(dice.randint(3, 7)) for writer in writers]
        for _ in range(dice.randint(1, 4)):
            time.sleep(dice.random() * 0.25)
            self._fault(dice.choice(KINDS))
        for thread in threads:
            thread.join(60)
        self._faults["late commit"] += sum(writer.late for writer in writers)
        self._faults["rolled back event"] += sum(len(writer.withdrawn) for writer in writers)
        self._faults["writer cut off"] += sum(writer.lost for writer in writers)
        self._tell("all is written")
        self._calm_down()
        found = self._wait_for_the_end()
        self._tell("all is done")
        for one in self._all:
            self._faults.update(one.end())
            if one.error is not None:
                found.append(f"relay {one.name} raised " + "".join(traceback.format_exception(one.error)))
        self._tell("all relays ended")
        return self._judge(found, {event_id for writer in writers for event_id in writer.withdrawn})

    # Faults -------------------------------------------------------------------------------------------------------

    def _fault(self, kind: Kind) -> None:
        dice = self._random
        victim = dice.choice(self._living)
        boundaries = int(dice.expovariate(1 / 25))
        self._tell(f"{kind} {victim.name} (after {boundaries})")
        if kind == "kill":
            victim.kill(boundaries)
            self._replace(victim)
        elif kind in ("stall", "suspend"):
            kind = victim.sleep(boundaries, self._settings.lease * (1.2 + dice.random()), dice)
        elif kind == "lost answers":
            victim.lose_answers(dice.randint(1, 6))
        elif kind == "cut":
            self._world.cut()
        elif kind == "stop":
            self._living.remove(victim)
            victim.leave()
            self._replace(victim)
        elif kind == "join" and len(self._living) < 4:
            self._join()
        elif kind == "replay":
            self._world.replay_dead()
        self._faults[kind] += 1

    def _replace(self, victim: Alive) -> None:
        if victim in self._living and len(self._living) > 1:
            self._living.remove(victim)
        if self._random.random() < 0.7 or not [one for one in self._living if one is not victim]:
            self._join()

    def _join(self) -> None:
        name = f"r{self._seed}-{len(self._all)}"
        one = self._hire(self._world, self._broker, Random(self._random.random()), name, self._settings)
        self._living.append(one)
        self._all.append(one)
        self._tell(f"{name} joins")

    def _calm_down(self) -> None:
        self._broker.calm_down()
        if self._random.random() < 0.5:
            self._tell(f"replayed {self._world.replay_dead()}")
        if not any(one.works for one in self._all):
            self._join()

    # The end ------------------------------------------------------------------------------------------------------

    def _wait_for_the_end(self) -> list[str]:
        until = time.monotonic() + DEADLINE
        while left := unfinished(self._world.rows()):
            if time.monotonic() > until:
                return [f"not done after {DEADLINE} s: {one}" for one in left]
            if not any(one.works for one in self._all):
                self._join()  # the last one died late
            time.sleep(0.03)
        return []

    def _judge(self, found: list[str], withdrawn: set[str]) -> Outcome:
        rows, arrivals = self._world.rows(), self._broker.arrivals
        found += wrong(rows, self._broker, withdrawn, skips=self._skips)
        if isinstance(self._world, SqlWorld):
            found += effects(self._world.engine, arrivals, self._random)
        numbers = {messages[0].event_id: number for number, messages in rows.events.items()}
        for one in arrivals:
            at = (one.message.destination, one.message.key, numbers.get(one.message.event_id))
            self._history.append(f"arrived {at} by {one.relay}, offset {one.offset}")
        self._history += [f"{key}: {state}, {rows.errors[key]}" for key, state in sorted(rows.parked.items())]
        self._faults.update(self._broker.faults)
        return Outcome(
            self._seed,
            found,
            self._faults,
            len(rows.events),
            len(arrivals),
            self._history,
            time.monotonic() - self._began,
        )

    def _tell(self, what: str) -> None:
        self._history.append(f"{time.monotonic() - self._began:.3f} {what}")
