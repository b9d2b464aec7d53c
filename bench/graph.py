"""Bars of two sides as SVG, readable on light and on dark ground, without any library. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

WIDTH, LABELS, BAR, GAP, HEAD = 760, 250, 13, 12, 46
STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#333}.small{font-size:11px}.product{fill:#2f6fb3}.raw{fill:#b9c0c8}"
    "@media(prefers-color-scheme:dark){text{fill:#ddd}.product{fill:#6aa7e8}.raw{fill:#5c6670}}"
)


class Pair(NamedTuple):
    """One group: the same thing measured on both sides."""

    label: str
    product: float
    raw: float


def bars(title: str, names: tuple[str, str], pairs: Sequence[Pair], unit: str) -> str:
    """An SVG with a group of two bars for each pair, the first name's above."""
    step = 2 * BAR + GAP
    height = HEAD + step * len(pairs) + 8
    scale = (WIDTH - LABELS - 90) / (max((max(one.product, one.raw) for one in pairs), default=1.0) or 1.0)
    body = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img"'
        f' aria-label="{escape(title)}"><style>{STYLE}</style>',
        f'<text x="8" y="18" font-weight="600">{escape(title)}</text>',
        _legend(names),
    ]
    for place, one in enumerate(pairs):
        top = HEAD + place * step
        body.append(f'<text x="{LABELS - 10}" y="{top + BAR + 4}" text-anchor="end">{escape(one.label)}</text>')
        body += [_bar(top, one.product, scale, "product", unit), _bar(top + BAR, one.raw, scale, "raw", unit)]
    return "\n".join([*body, "</svg>\n"])


def _bar(top: int, value: float, scale: float, kind: str, unit: str) -> str:
    length = round(value * scale, 1)
    number = f"{value:,.0f}" if value >= 100 else f"{value:.1f}"
    return (
        f'<rect class="{kind}" x="{LABELS}" y="{top}" width="{length}" height="{BAR - 1}"/>'
        f'<text class="small" x="{LABELS + length + 5}" y="{top + BAR - 3}">{number} {escape(unit)}</text>'
    )


def _legend(names: tuple[str, str]) -> str:
    return "".join(
        f'<rect class="{kind}" x="{LABELS + 150 * place}" y="28" width="10" height="10"/>'
        f'<text class="small" x="{LABELS + 15 + 150 * place}" y="37">{escape(name)}</text>'
        for place, (kind, name) in enumerate(zip(("product", "raw"), names, strict=True))
    )
