"""One event's moments as a picture: a lane for each participant, time going down, a line of text beside each moment.

Moments stand at equal distances, since microseconds and leases share one picture; a longer pause is written into it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from ..model import Lane, Moment
from .markup import Markup, cut, el, printable
from .texts import Texts

LIMIT: Final = 60
"""Moments in one picture; an event that was sent again and again may have more."""

_TIME, _LANE, _TEXT = 92, 84, 380  # widths in pixels: time, each lane, the words
_LANES: Final = tuple(Lane)
_X0: Final = _TIME
_TEXT_X: Final = _X0 + _LANE * len(_LANES) + 20
_WIDTH: Final = _TEXT_X + _TEXT
_HEAD, _ROW, _LINE, _GAP = 44, 32, 17, 24  # heights: names of the lanes, a moment, each further line of it, a pause
_LONG: Final = 0.5  # seconds: from here on a pause is shown
_WRAP: Final = 52  # units of half an em that fit beside the lanes
_PROCESSES: Final = frozenset({Lane.APPLICATION, Lane.RELAY, Lane.CONSUMER})


@dataclass(frozen=True, slots=True)
class Placed:
    """A moment with its place in the picture: ``y`` of its dot, the lines of its text, the pause before it."""

    moment: Moment
    y: int
    lines: tuple[str, ...]
    pause: float


def picture(texts: Texts, moments: Sequence[Moment], *, name: str) -> Markup:
    """The SVG of ``moments``, which are in order of time. ``name`` is unique in the page."""
    placed = tuple(_placed(texts, moments[:LIMIT]))
    height = (placed[-1].y + 12 + _LINE * len(placed[-1].lines)) if placed else _HEAD
    return el(
        "svg",
        el(
            "title", f"{texts.timeline}: {printable(str(moments[0].event_id or '')) if moments else ''}", id=f"{name}-t"
        ),
        _lane_names(texts),
        [_lifelines(lane, placed, height) for lane in _LANES],
        _order(placed),
        [_row(texts, one, placed[0].moment.at) for one in placed],
        class_="timeline",
        viewBox=f"0 0 {_WIDTH} {height}",
        width=_WIDTH,
        height=height,
        role="img",
        aria_labelledby=f"{name}-t",
    )


def relative(seconds: float) -> str:
    """Time since the first moment: microseconds to minutes, short."""
    sign, size = ("-" if seconds < 0 else "+"), abs(seconds)
    if size < 0.0005:
        return "0" if size < 0.00005 else f"{sign}{size * 1000:.1f} ms"
    if size < 1:
        return f"{sign}{size * 1000:.1f} ms"
    return f"{sign}{size:.2f} s" if size < 100 else f"{sign}{size:.0f} s"


def _placed(texts: Texts, moments: Sequence[Moment]) -> Iterator[Placed]:
    y, before = _HEAD + 14, None
    for moment in moments:
        pause = moment.at - before if before is not None else 0.0
        y += _GAP if pause >= _LONG else 0
        lines = tuple(_wrapped(cut(printable(" ".join((texts.said(moment.what) or moment.what).split())), 200)))
        yield Placed(moment, y, lines, pause)
        y, before = y + _ROW + _LINE * (len(lines) - 1), moment.at


def _wrapped(text: str) -> Iterator[str]:
    """Lines of at most ``_WRAP`` units, cut at spaces where there are any; a Chinese character is two units wide."""
    line, width = "", 0
    for word in _words(text):
        size = sum(2 if ord(one) > 0x2E80 else 1 for one in word)
        if line and width + size > _WRAP:
            yield line.rstrip()
            line, width = "", 0
        line, width = line + word, width + size
    yield line.rstrip()


def _words(text: str) -> Iterator[str]:
    word = ""
    for one in text:
        word += one
        if one in " ,;/:" or ord(one) > 0x2E80 or len(word) >= _WRAP:
            yield word
            word = ""
    if word:
        yield word


def _x(lane: Lane) -> float:
    return _X0 + _LANE * (_LANES.index(lane) + 0.5)


def _lane_names(texts: Texts) -> list[Markup]:
    return [
        el("text", texts.lanes[lane], class_="lane-name", x=_x(lane), y=20, text_anchor="middle") for lane in _LANES
    ]


def _lifelines(lane: Lane, placed: Sequence[Placed], height: int) -> list[Markup]:
    """The whole lane, faint; on it the time in which it is at work. A process's line ends where it ends."""
    x, drawn = _x(lane), [el("line", class_="lane", x1=_x(lane), y1=_HEAD - 14, x2=_x(lane), y2=height)]
    own = [one for one in placed if one.moment.lane is lane]
    for first, second in pairwise(own):
        if lane not in _PROCESSES or first.moment.kind == "step":
            drawn.append(el("line", class_="life", x1=x, y1=first.y, x2=x, y2=second.y))
    return drawn


def _order(placed: Sequence[Placed]) -> Markup | None:
    points = " ".join(f"{_x(one.moment.lane):g},{one.y}" for one in placed)
    return el("polyline", class_="order", points=points) if len(placed) > 1 else None


def _row(texts: Texts, one: Placed, start: float) -> Markup:
    moment, fault = one.moment, one.moment.kind == "fault"
    band_height = _ROW - 4 + _LINE * (len(one.lines) - 1)
    return el(
        "g",
        el("rect", class_="band", x=0, y=one.y - 14, width=_WIDTH, height=band_height, rx=5) if fault else None,
        _pause(texts, one) if one.pause >= _LONG else None,
        el("text", relative(moment.at - start), class_="at", x=_TIME - 14, y=one.y + 4, text_anchor="end"),
        _mark(moment, one.y),
        [el("text", line, class_="what", x=_TEXT_X, y=one.y + 4 + _LINE * at) for at, line in enumerate(one.lines)],
        class_=f"moment {moment.kind}",
    )


def _pause(texts: Texts, one: Placed) -> list[Markup]:
    y = one.y - 14 - _GAP // 2
    return [
        el("line", class_="pause", x1=_X0, y1=y, x2=_TEXT_X - 20, y2=y),
        el("text", f"… {texts.seconds(one.pause)} …", class_="pause-text", x=_TEXT_X, y=y + 4),
    ]


def _mark(moment: Moment, y: int) -> list[Markup]:
    """Shape says who knows it (circle: lab, square: database, diamond: broker); a cross is the fault, a bar an end."""
    x = _x(moment.lane)
    if moment.kind == "fault":
        return [
            el("circle", class_="halo", cx=x, cy=y, r=10),
            el("path", class_="cross", d=f"M{x - 5:g} {y - 5}L{x + 5:g} {y + 5}M{x + 5:g} {y - 5}L{x - 5:g} {y + 5}"),
        ]
    end = [el("line", class_="stop", x1=x - 8, y1=y + 8, x2=x + 8, y2=y + 8)] if moment.kind == "end" else []
    return [shape(moment.source, x, y), *end]


def shape(source: str, x: float, y: float) -> Markup:
    """The dot of a moment, by where its knowledge is from."""
    if source == "database":
        return el("rect", class_="dot", x=x - 5, y=y - 5, width=10, height=10, rx=1.5)
    if source == "broker":
        return el("path", class_="dot", d=f"M{x:g} {y - 7:g}L{x + 7:g} {y:g}L{x:g} {y + 7:g}L{x - 7:g} {y:g}Z")
    return el("circle", class_="dot", cx=x, cy=y, r=5)


def legend(texts: Texts) -> Markup:
    """What the shapes mean."""

    def key(drawn: Sequence[Markup], words: str) -> Markup:
        return el("li", el("svg", drawn, viewBox="0 0 24 20", width=24, height=20, aria_hidden="true"), " ", words)

    cross = [el("path", class_="cross", d="M7 5L17 15M17 5L7 15")]
    stop = [shape("lab", 12, 8), el("line", class_="stop", x1=4, y1=16, x2=20, y2=16)]
    return el(
        "ul",
        [key([shape(source, 12, 10)], words) for source, words in texts.sources.items()],
        key(cross, texts.legend_fault),
        key(stop, texts.legend_end),
        key([el("polyline", class_="order", points="2,4 22,16")], texts.legend_path),
        class_="legend",
    )
