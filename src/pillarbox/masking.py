"""Hiding what is secret in a URL, wherever one is shown or logged."""

from __future__ import annotations

import re
from typing import Final

MASK: Final = "***"

# Up to the last `@`: a password may itself hold `/`, `?` or `@`. Hiding too much is a nuisance, too little is a leak.
# The name before it may hold an `@`, too, as in `user@server`.
_USERINFO: Final = re.compile(r"(://[^:/\s]*):\S*@")
_WHOLE: Final = re.compile(r"\A([^:/]*://[^:/]*|[^:/]*(?!://)):.*@", re.DOTALL)
_QUERY: Final = re.compile(
    r"([?&;][^=&;\s]*(?:pass|pwd|secret|token|credential|sslkey)[^=&;\s]*=)[^&;\s]*", re.IGNORECASE
)


def mask_url(text: str) -> str:
    """``text`` with the passwords of any URL in it, and secret-looking query parameters, replaced by ``***``.

    >>> mask_url("mysql+pymysql://app:s3cret@db/shop?ssl_key_password=x")
    'mysql+pymysql://app:***@db/shop?ssl_key_password=***'
    """
    return _QUERY.sub(rf"\g<1>{MASK}", _USERINFO.sub(rf"\g<1>:{MASK}@", text))


def mask_whole_url(url: str) -> str:
    """The same for a string that is nothing but a URL: a password may hold spaces, and the scheme may be forgotten.

    >>> mask_whole_url("app:s3 cret@db/shop")
    'app:***@db/shop'
    """
    return mask_url(_WHOLE.sub(rf"\g<1>:{MASK}@", url))
