"""What RabbitMQ's refusals mean for an event."""

from __future__ import annotations

import ssl
from typing import Final

from pika.exceptions import (
    ChannelClosedByBroker,
    IncompatibleProtocolError,
    ProbableAccessDeniedError,
    ProbableAuthenticationError,
    StreamLostError,
)

from ...errors import AccessRefused, BrokerUnavailable, PillarboxError
from ...event.message import Message
from ...ports import Rejected

NOT_FOUND: Final = 404
_PERMANENT: Final = frozenset({311, 403, 406, 501, 502, 503})
"""Content too large, access refused, precondition failed (message over max_message_size), and malformed frames.

The others (such as 541 internal error, 506 resource error) may pass when tried again.
"""

NACKED: Final = Rejected(
    "the broker took no responsibility for it (nack): the queue is full or failed", permanent=False
)


def unroutable(message: Message, routing_key: str, reply_text: str) -> Rejected:
    """Basic.Return: the exchange exists, and no queue is bound to it for this routing key."""
    where = f"exchange {message.destination!r}" if message.destination else "the default exchange"
    return Rejected(
        f"unroutable ({reply_text}): {where} leads to no queue for routing key {routing_key!r}", permanent=True
    )


def no_such_exchange(exchange: str) -> Rejected:
    """Retryable: an exchange that is declared a minute later needs no replay."""
    return Rejected(f"no exchange {exchange!r}", permanent=False, of_destination=True)


def unencodable(error: Exception) -> Rejected:
    """pika cannot write this message as AMQP, e.g. a header name of more than 255 bytes."""
    return Rejected(f"cannot be written as AMQP: {type(error).__name__}", permanent=True)


def verdict_on_close(error: ChannelClosedByBroker, message: Message) -> Rejected:
    """The broker closed the channel because of this very message."""
    text = f"{error.reply_text} ({error.reply_code}; the payload has {len(message.payload):,} bytes)"
    return Rejected(text, permanent=error.reply_code in _PERMANENT)


_UNTRUSTED: Final = (
    "Name the authority that signed the broker's certificate (ca=FILE), and write the host as the certificate does."
)
_NO_TLS: Final = "Check that this is the port for TLS (usually 5671), and the URL's cert and key."


def explain(error: BaseException, shown: str) -> PillarboxError:
    """Why no connection could be opened; ``shown`` is the URL without its password."""
    if isinstance(error, ProbableAuthenticationError):
        return AccessRefused(f"RabbitMQ at {shown} refused the user name or password.")
    if isinstance(error, ProbableAccessDeniedError):
        return AccessRefused(
            f"RabbitMQ at {shown} refused access to the virtual host, or there is none of that name.",
            fix="Check the path of the URL and the user's permissions (rabbitmqctl list_permissions -p VHOST).",
        )
    cause = _cause(error)
    if isinstance(cause, ssl.SSLError):
        untrusted = isinstance(cause, ssl.SSLCertVerificationError)
        return BrokerUnavailable(
            f"RabbitMQ at {shown}: the TLS handshake failed: {reason_of(error)}.",
            fix=_UNTRUSTED if untrusted else _NO_TLS,
        )
    if isinstance(cause, (StreamLostError, IncompatibleProtocolError)) and not shown.startswith("amqps:"):
        return BrokerUnavailable(
            f"RabbitMQ at {shown} closed the connection at once: {reason_of(error)}.",
            fix="Where the port speaks TLS (usually 5671), write amqps:// instead of amqp://.",
        )
    return BrokerUnavailable(f"RabbitMQ at {shown} does not answer: {reason_of(error)}.")


def reason_of(error: BaseException) -> str:
    """The innermost cause in one line."""
    cause = _cause(error)
    text = str(cause).strip().rstrip(".")
    return f"{type(cause).__name__}: {text}" if text else type(cause).__name__


def _cause(error: BaseException) -> BaseException:
    """pika wraps one exception into another, as an argument or as an attribute; those of its phases say nothing."""
    while True:
        inside = [*error.args[:1], *getattr(error, "exceptions", ())[-1:], getattr(error, "exception", None)]
        found = next((one for one in inside if isinstance(one, BaseException)), None)
        if found is None:
            return error
        error = found
