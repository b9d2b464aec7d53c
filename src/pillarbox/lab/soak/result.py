"""What a soak found, whole: for the report, and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..model import Facts, Verdict
from .accounts import Accounts, Finding
from .gauge import Sample
from .happened import Happened


@dataclass(frozen=True, slots=True)
class Evidence:
    """A finding with the chain of what every server holds of its event."""

    finding: Finding
    facts: Facts
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class SoakResult:
    """Times in seconds, moments in seconds since 1970.

    ``drained`` False: not everything was sent and applied within the bound. ``drain_seconds`` is from the end of the
    faults until it was. ``complete`` False: the storm was ended before its time. ``machine`` is the load average at the
    beginning and the end, and the number of cores: figures mean little without it. ``suspects`` were set aside by the
    relays because several relays died while they sent just these, and were replayed after the storm.
    """

    command: str
    began: float
    seconds: float
    options: Mapping[str, Any]
    versions: Mapping[str, str]
    servers: Mapping[str, Any]
    machine: Mapping[str, Any]
    happened: tuple[Happened, ...]
    samples: tuple[Sample, ...]
    accounts: Accounts
    drained: bool
    drain_seconds: float
    complete: bool = True
    evidence: tuple[Evidence, ...] = ()
    links_absent: Mapping[str, str] = field(default_factory=dict)
    starts: Mapping[str, int] = field(default_factory=dict)
    suspects: int = 0

    @property
    def passed(self) -> bool:
        """Everything was accounted for, and nothing was wrong."""
        return self.accounts.balanced and self.drained

    @property
    def peak_backlog(self) -> int:
        """The most events that waited in the outbox at one look."""
        return max((one.waiting for one in self.samples), default=0)

    def count(self, kind: str) -> int:
        """How many things of a kind happened."""
        return sum(one.kind == kind for one in self.happened)

    @property
    def kills(self) -> int:
        """How many processes were killed."""
        return self.count("kill")

    @property
    def faults(self) -> Mapping[str, int]:
        """Everything that was done, by what it was: ``kill relay``, ``freeze consumer``, ``link broker: cut`` …"""
        found: Counter[str] = Counter()
        for one in self.happened:
            match one.kind:
                case "kill" | "freeze":
                    found[f"{one.kind} {one.role}"] += 1
                case "link":
                    found[f"link {one.who}: {one.what}"] += 1
                case "disturb":
                    found[f"disturb {one.who}: {one.what}"] += 1
                case "ended by itself":
                    found[f"{one.role} ended by itself: {one.what}"] += 1
                case "missed":
                    found[f"missed: {one.what}"] += 1
                case "stage":
                    continue
        return dict(sorted(found.items()))
