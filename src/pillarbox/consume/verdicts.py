"""What an error of a handler means for its event, and what becomes of messages that no handler is for. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, Literal, get_args

from ..errors import BadConsumer, EffectInDoubt, EffectPending, EffectRefused

Verdict = Literal["retry", "give up", "drop"]
"""Try again until ``retry`` is exhausted; set aside at once; acknowledge as if nothing had been there."""

Policy = Literal["set aside", "skip", "raise"]
"""Into the dead letters; acknowledged and counted; or the consumer ends with the error, and the message stays."""

RetryIn = Literal["place", "broker"]
"""A failed event waits here, and its key with it; or in a retry topic or queue, while its key goes on."""

NO_CLASSES: Final[Mapping[type[Exception], Verdict]] = MappingProxyType({})


_OURS: Final[Mapping[type[Exception], Verdict]] = MappingProxyType(
    {EffectInDoubt: "give up", EffectRefused: "give up", EffectPending: "retry"}
)
"""For errors that the user says nothing about: what a person has to decide, and an answer that stays the same, come out
no better in the next attempt."""


def verdict_on(error: BaseException, classes: Mapping[type[Exception], Verdict]) -> Verdict:
    """The verdict of the most specific class that the user named, else ours on effects, else ``retry``.

    >>> verdict_on(FileNotFoundError(), {OSError: "retry", FileNotFoundError: "give up"})
    'give up'
    >>> verdict_on(EffectRefused("card declined"), {}), verdict_on(EffectRefused("no"), {Exception: "retry"})
    ('give up', 'retry')
    """
    for named in (classes, _OURS):
        for kind in type(error).__mro__:
            if kind in named:
                return named[kind]
    return "retry"


def checked_classes(given: Mapping[Any, Any]) -> Mapping[type[Exception], Verdict]:
    """The mapping, frozen; BadConsumer (PB-041) for what is no exception or no verdict."""
    for kind, verdict in given.items():
        if not isinstance(kind, type) or not issubclass(kind, Exception):
            raise BadConsumer(
                f"on_error names {kind!r}, which is no class of exceptions.", fix="Name exception classes."
            )
        if verdict not in get_args(Verdict):
            raise BadConsumer(
                f"on_error says {verdict!r} about {kind.__name__}.", fix="Say 'retry', 'give up' or 'drop'."
            )
    return MappingProxyType(dict(given))


def check_policy(name: str, policy: object) -> None:
    """Raise BadConsumer (PB-041) for a policy that does not exist."""
    if policy not in get_args(Policy):
        raise BadConsumer(f"{name} is {policy!r}.", fix="Say 'set aside', 'skip' or 'raise'.")
