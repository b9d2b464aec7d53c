"""Whether a binding takes a routing key along, as RabbitMQ decides it."""

from __future__ import annotations

from functools import lru_cache


def leads_to(exchange_type: str, pattern: str, key: str | None) -> bool:
    """Whether a binding with ``pattern`` passes on messages with this routing key; None stands for any key.

    Of exchange types that look at something else (headers, plugins), True: some message may pass.

    >>> leads_to("topic", "order.*", "order.created"), leads_to("direct", "order.*", "order.created")
    (True, False)
    """
    if key is None:
        return True
    if exchange_type == "direct":
        return pattern == key
    if exchange_type == "topic":
        return _matches(tuple(pattern.split(".")), tuple(key.split(".")))
    return True


@lru_cache(maxsize=1_024)
def _matches(pattern: tuple[str, ...], words: tuple[str, ...]) -> bool:
    """``*`` is one word, ``#`` any number of them (AMQP 0-9-1, section 3.1.3.3)."""
    if not pattern:
        return not words
    if pattern[0] == "#":
        return _matches(pattern[1:], words) or (bool(words) and _matches(pattern, words[1:]))
    return bool(words) and pattern[0] in ("*", words[0]) and _matches(pattern[1:], words[1:])
