"""One thing that was done to the system, or that happened to it: a line of the soak's timeline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Kind = Literal["kill", "freeze", "link", "disturb", "ended by itself", "missed", "stage"]


@dataclass(frozen=True, slots=True)
class Happened:
    """``at`` in seconds since 1970, ``who`` a process, link or command, ``what`` the fault point, fault or outcome.

    ``seconds`` is how long it lasted, where it lasts.
    """

    at: float
    kind: Kind
    who: str
    what: str
    seconds: float | None = None

    @property
    def role(self) -> str:
        """The role of a process: ``relay`` of ``relay-2``."""
        return self.who.partition("-")[0]


def kills_by_point(happened: Iterable[Happened]) -> Counter[tuple[str, str]]:
    """How often each role was killed at each point (``anywhere``: wherever it was)."""
    return Counter((one.role, one.what) for one in happened if one.kind == "kill")
