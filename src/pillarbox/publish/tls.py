"""TLS as the options of a broker URL say it, for clients that take Python's own context."""

from __future__ import annotations

import ssl
from typing import Final

from ..errors import BadUrl
from .broker_url import BrokerUrl

TLS_OPTIONS: Final = ("ca", "cert", "key", "verify")
"""``ca``, ``cert`` and ``key`` are files; ``verify=no`` believes any certificate."""


def tls_context(parts: BrokerUrl) -> ssl.SSLContext:
    """The context for these options. Raises BadUrl (PB-002) for files that cannot be read."""
    options = parts.options
    try:
        context = ssl.create_default_context(cafile=options.get("ca"))
        if "cert" in options:
            context.load_cert_chain(options["cert"], options.get("key"))
    except (OSError, ssl.SSLError) as error:
        raise BadUrl(
            f"{parts.shown}: the TLS files cannot be read: {error}.", fix="Check the files named by ca, cert and key."
        ) from error
    if not yes_or_no(parts, "verify", default=True):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def yes_or_no(parts: BrokerUrl, option: str, *, default: bool) -> bool:
    """An option that is ``yes`` or ``no``; BadUrl (PB-002) for anything else."""
    said = parts.options.get(option, "yes" if default else "no").lower()
    if said not in {"yes", "no"}:
        usual = "yes" if default else "no"
        other = "no" if default else "yes"
        raise BadUrl(
            f"{parts.shown}: {option} is {said!r}.", fix=f"Write {option}={usual} (the default) or {option}={other}."
        )
    return said == "yes"
