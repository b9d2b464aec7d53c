"""All relays of this process, each on a thread of its own: what happens to one is nothing to the others."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from ...observe.lookout import Seen
from ...observe.snapshot import Snapshot
from .plan import Planned
from .unit import Unit


class Crew:
    """Runs the planned relays to their end. A Source for the endpoints."""

    def __init__(self, planned: Sequence[Planned]) -> None:
        self.units = [Unit(one, patient=len(planned) > 1) for one in planned]

    def run(self, *, until_empty: bool, patience: float | None = None) -> None:
        """Until all have ended. Raises the first error of those that are not patient."""
        if len(self.units) == 1:
            self.units[0].run(until_empty=until_empty, patience=patience)
            return
        failures: list[BaseException] = []
        threads = [
            threading.Thread(
                target=_guarded,
                args=(unit, until_empty, patience, failures),
                name=f"relay-{unit.planned.outbox}",
                daemon=True,
            )
            for unit in self.units
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]

    def stop(self) -> None:
        """Ask all for their end."""
        for unit in self.units:
            unit.stop()

    def snapshots(self) -> Sequence[Snapshot]:
        return [unit.snapshot() for unit in self.units]

    def backlogs(self) -> Mapping[str, Seen]:
        return {unit.planned.outbox: unit.lookout.latest() for unit in self.units}


def _guarded(unit: Unit, until_empty: bool, patience: float | None, failures: list[BaseException]) -> None:
    try:
        unit.run(until_empty=until_empty, patience=patience)
    except BaseException as error:  # noqa: BLE001 - raised again by run()
        failures.append(error)
