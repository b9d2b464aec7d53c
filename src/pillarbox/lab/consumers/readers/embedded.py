"""Reading from the embedded log."""

from __future__ import annotations

from collections.abc import Sequence

from ....embedded import EmbeddedLog, parse_embedded_url
from ..desk import Desk, Letter


class EmbeddedReader:
    """A member of a group. It takes part by reading: nothing renews its leases while it handles."""

    def __init__(self, log: EmbeddedLog, desk: Desk, *, automatic: bool) -> None:
        self._log = log
        self._desk = desk
        self._automatic = automatic

    def poll(self, timeout: float, limit: int) -> list[Letter]:
        """The next records of the partitions that this member holds."""
        records = self._log.read(self._desk.name, [self._desk.source], limit, timeout=timeout)
        if self._automatic:
            self._log.commit(self._desk.name, records)
        return [Letter(record.headers["id"], record) for record in records]

    def acknowledge(self, letters: Sequence[Letter]) -> None:
        """Move the group's position; a partition that was lost meanwhile stays where it is."""
        self._log.commit(self._desk.name, [letter.handle for letter in letters])

    def close(self) -> None:
        """Leave the group."""
        self._log.leave(self._desk.name)
        self._log.close()


def open_reader(desk: Desk, *, automatic: bool) -> EmbeddedReader:
    """Join the group."""
    lease = float(desk.options.get("lease", 10.0))
    return EmbeddedReader(EmbeddedLog(parse_embedded_url(desk.broker).path, lease=lease), desk, automatic=automatic)
