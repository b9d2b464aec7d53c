"""HTML elements whose text is always escaped: what a server sent can show in a report and never become part of it."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Final

_EMPTY: Final = frozenset({"meta", "br", "col", "line", "circle", "rect", "path", "polyline"})

_SPACES: Final = "\n\t\u00a0\u202f\u3000"

Child = object
"""A string (escaped), Markup (as it is), None (left out), or an iterable of these."""


class Markup(str):
    """Text that is HTML already. Made by :func:`el` and :func:`join` alone, and from this package's own constants."""

    __slots__ = ()


def el(name: str, /, *children: Child, **attributes: str | int | float | bool | None) -> Markup:
    """An element. ``class_`` and ``for_`` lose their underscore, others become hyphens; None and False leave it out.

    >>> el("td", "<b>", class_="n")
    '<td class="n">&lt;b&gt;</td>'
    """
    said = "".join(
        _attribute(key, value) for key, value in attributes.items() if value is not None and value is not False
    )
    if name in _EMPTY:
        return Markup(f"<{name}{said}>" if name in ("meta", "br", "col") else f"<{name}{said}/>")
    return Markup(f"<{name}{said}>{join(children)}</{name}>")


def join(children: Iterable[Child], between: str = "") -> Markup:
    """Children one after the other, ``between`` (plain text) between them.

    >>> join(["a & b", el("br"), None])
    'a &amp; b<br>'
    """
    return Markup(escape(between).join(_shown(one) for one in children if one is not None))


def _shown(child: Child) -> str:
    if isinstance(child, Markup):
        return child
    if isinstance(child, str):
        return escape(printable(child))
    if isinstance(child, Iterable):
        return join(child)
    return escape(str(child))


def _attribute(key: str, value: str | int | float | bool) -> str:
    name = key.rstrip("_").replace("_", "-")
    if value is True:
        return f" {name}"
    return f' {name}="{escape(printable(f"{value:g}" if isinstance(value, float) else str(value)))}"'


def printable(text: str) -> str:
    """``text`` with control characters and halves of surrogate pairs as visible escapes: no file may hold them.

    >>> printable("bell\\x07")
    'bell\\\\x07'
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in _SPACES else _escaped(one) for one in text)


def _escaped(one: str) -> str:
    code = ord(one)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"


def cut(text: str, limit: int) -> str:
    """``text``, or its first ``limit`` characters and how many more there are.

    >>> cut("abcdef", 4)
    'abcd… (+2)'
    """
    return text if len(text) <= limit else f"{text[:limit]}… (+{len(text) - limit})"
