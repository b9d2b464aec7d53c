"""What an experiment with Kafka alone is, and what came out of it. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Share = Literal["none", "all"]
"""Of how many events: of none or of all of them."""

Setting = str | int | bool | None


@dataclass(frozen=True, slots=True)
class Told:
    """One event: which offset its producer was told, and where it is in the topic.

    ``acknowledged``: the client called it delivered. ``told`` is the offset that it named (None with acks=0, which
    knows none). ``places`` are ``topic[partition]@offset`` of all records that bear its id, read after all was over.
    """

    event_id: str
    acknowledged: bool
    told: int | None
    places: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sync:
    """The in-sync replicas of the topic's partition at one moment, as the cluster said. ``leader`` -1: nobody leads."""

    moment: str
    leader: int
    in_sync: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Trial:
    """One experiment: what was set, what was done, what was expected, and what was found.

    Expected of the events, none or all: that the client calls them delivered (``expect_acknowledged``), that the topic
    has them twice (``expect_doubled``), that they are gone although they were acknowledged (``expect_gone``).
    ``reason`` is set when it was not run ("expected, not run"); then nothing was found.
    """

    id: str
    title: str
    fault: str
    why: str
    expect_doubled: Share
    expect_gone: Share
    expect_acknowledged: Share = "all"
    settings: Mapping[str, Setting] = field(default_factory=dict)
    events: tuple[Told, ...] = ()
    sync: tuple[Sync, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    reason: str | None = None

    @property
    def ran(self) -> bool:
        """True when there is something to judge."""
        return self.reason is None

    @property
    def acknowledged(self) -> int:
        """How many events the client called delivered."""
        return sum(one.acknowledged for one in self.events)

    @property
    def records(self) -> int:
        """How many records of these events the topic holds."""
        return sum(len(one.places) for one in self.events)

    @property
    def doubled(self) -> int:
        """How many events the topic holds more than once."""
        return sum(len(one.places) > 1 for one in self.events)

    @property
    def gone(self) -> int:
        """How many events were acknowledged and are in no record."""
        return sum(one.acknowledged and not one.places for one in self.events)

    @property
    def as_expected(self) -> bool | None:
        """Whether it came out as expected; None when it was not run. A surprise is shown, not hidden."""
        if not self.ran:
            return None
        whole = {"none": 0, "all": len(self.events)}
        found = (self.acknowledged, self.doubled, self.gone)
        return found == (whole[self.expect_acknowledged], whole[self.expect_doubled], whole[self.expect_gone])

    @property
    def sentence(self) -> str:
        """What came out, in one sentence."""
        if not self.ran:
            return f"Expected, not run: {self.reason}"
        return (
            f"{len(self.events)} sent, {self.acknowledged} acknowledged, {self.records} records: "
            f"{self.doubled} doubled, {self.gone} acknowledged and gone."
        )
