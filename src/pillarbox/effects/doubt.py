"""What to do with an effect that was begun and whose outcome nobody here knows. Pure.

A process died between the call and its record, or an answer never came. Three ways out, and only the user can choose:
it depends on what the other side offers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from ..errors import ConfigError


@dataclass(frozen=True, slots=True)
class SameKey:
    """Call again with the same key: the other side is idempotent, for longer than an event can be delivered again."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Call no more; set the event aside until a person has looked (``pillarbox effects``)."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """Ask the other side, by a key of the business: ``find(idempotency key)`` returns its answer, or None for "no".

    A "no" counts only ``wait`` seconds after the last attempt began: what was sent just before a crash may still be on
    its way. Make it longer than the call's own deadline and what lies between you and them may delay.
    """

    find: Callable[[str], Any]
    wait: float = 60.0

    def __post_init__(self) -> None:
        if not callable(self.find) or not 0 <= self.wait <= 86_400:
            raise ConfigError(
                "Lookup takes a function, and a wait of 0 to 86400 seconds.", fix="Pass Lookup(function)."
            )


InDoubt = SameKey | Ask | Lookup

SAME_KEY: Final = SameKey()
ASK: Final = Ask()


def check_in_doubt(choice: object) -> None:
    """Refuse anything but SAME_KEY, ASK and a Lookup, before a call: taken for another one it might pay twice.

    Raises ConfigError (PB-001).
    """
    if not isinstance(choice, InDoubt):
        raise ConfigError(f"in_doubt is {choice!r}.", fix="Say SAME_KEY, ASK or Lookup(find), from pillarbox.effects.")


def is_believed(age: float, wait: float) -> bool:
    """Whether "there is nothing" counts, ``age`` seconds after the last attempt began.

    >>> is_believed(5.0, 60.0), is_believed(61.0, 60.0)
    (False, True)
    """
    return age >= wait
