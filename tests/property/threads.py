"""Relays as threads of this process, with a fate of their own."""

import threading
from collections import Counter
from random import Random

from pillarbox.relay.ordered import OrderedRelay
from pillarbox.relay.settings import RelaySettings
from tests.property.broker import Broker, DicePublisher, odds_of
from tests.property.fate import Fate, FatefulStore, Sleeper
from tests.property.rounds import Kind
from tests.property.worlds import World


class Living:
    """Implements Alive."""

    def __init__(self, world: World, broker: Broker, random: Random, name: str, settings: RelaySettings) -> None:
        self.name = name
        self._fate = Fate(name)
        self._suspends = random.random() < 0.5
        publisher = DicePublisher(broker, self._fate, odds_of(random), random)
        store = FatefulStore(world.store(name, settings.lease), self._fate)
        clock = Sleeper(self._fate) if self._suspends else None
        self._relay = OrderedRelay(store, publisher, settings, clock=clock, chance=random.random)
        self._raised: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def error(self) -> BaseException | None:
        """The dead say nothing."""
        return None if self._fate.dead else self._raised

    @property
    def works(self) -> bool:
        return not self._fate.dead and self._thread.is_alive()

    def wait(self) -> None:
        """It works at once."""

    def kill(self, after: int) -> None:
        self._fate.die_after(after)

    def sleep(self, after: int, seconds: float, dice: Random) -> Kind:
        at = dice.choice((None, "read", "read_parked"))  # before a read is where it hurts most
        self._fate.sleep_after(after if at is None else after // 10, seconds, at)
        return "suspend" if self._suspends else "stall"

    def lose_answers(self, count: int) -> None:
        self._fate.lose_answers(count)

    def leave(self) -> None:
        self._relay.stop()

    def end(self) -> Counter[str]:
        self._relay.stop()
        self._thread.join(20)
        if self._thread.is_alive():
            self._raised = self._raised or TimeoutError("does not stop")
        stats = self._relay.stats
        return Counter(
            {
                "takeover seen as crash": stats.crashes_seen,
                "partition lost": stats.partitions_lost,
                "straggler swept up": stats.stragglers,
            }
        )

    def _run(self) -> None:
        try:
            self._relay.run()
        except BaseException as error:  # noqa: BLE001 - whatever it is, the round reports it
            self._raised = error
