"""The backlog over time as an SVG file that reads on light and on dark ground. Pure."""

from collections.abc import Sequence

from .watching import Sample

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 760, 300, 56, 40, 36
COLOURS = {"waiting": "#2f6fb3", "open": "#c77f1b", "kill": "#c0392b"}


def picture(samples: Sequence[Sample], kills: Sequence[tuple[float, str]]) -> str:
    """Two lines: events that wait in the outboxes, orders without an answer; a mark for each kill."""
    end = max((one.at for one in samples), default=1.0) or 1.0
    top = max((max(one.waiting, one.open) for one in samples), default=1) or 1
    body = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="backlog">',
        "<style>text{font:12px system-ui,sans-serif;fill:#777}</style>",
        *_legend(),
        *_axes(end, top),
    ]
    for kind, seconds in (("waiting", [one.waiting for one in samples]), ("open", [one.open for one in samples])):
        points = " ".join(f"{_x(s.at, end):.1f},{_y(v, top):.1f}" for s, v in zip(samples, seconds, strict=True))
        body.append(f'<polyline fill="none" stroke="{COLOURS[kind]}" stroke-width="2" points="{points}"/>')
    for at, name in kills:
        x = _x(at, end)
        body.append(f'<path d="M{x:.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="{COLOURS["kill"]}" stroke-dasharray="3 3"/>')
        body.append(f'<text x="{x + 3:.1f}" y="{TOP + 10}">{name}</text>')
    return "\n".join([*body, "</svg>\n"])


def _legend() -> list[str]:
    names = {"waiting": "events waiting in the outboxes", "open": "orders without an answer", "kill": "kill -9"}
    return [
        f'<rect x="{LEFT + 230 * place}" y="12" width="10" height="10" fill="{COLOURS[kind]}"/>'
        f'<text x="{LEFT + 15 + 230 * place}" y="21">{name}</text>'
        for place, (kind, name) in enumerate(names.items())
    ]


def _axes(end: float, top: int) -> list[str]:
    base = HEIGHT - BOTTOM
    return [
        f'<path d="M{LEFT} {TOP}V{base}H{WIDTH - 10}" fill="none" stroke="#999"/>',
        f'<text x="{LEFT - 6}" y="{TOP + 5}" text-anchor="end">{top}</text>',
        f'<text x="{LEFT - 6}" y="{base}" text-anchor="end">0</text>',
        f'<text x="{WIDTH - 10}" y="{base + 18}" text-anchor="end">{end:.1f} s</text>',
    ]


def _x(at: float, end: float) -> float:
    return LEFT + (WIDTH - 10 - LEFT) * at / end


def _y(value: int, top: int) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * value / top
