"""From snapshots and backlogs to Prometheus' text, by its own client library."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Protocol

from ..errors import MissingDriver
from .lookout import Seen
from .metrics import HOLDS, NO_COUNTERS, OTHERS, OUTBOX_GAUGES, RELAY_COUNTERS, RELAY_GAUGES, STATES
from .snapshot import Snapshot

if TYPE_CHECKING:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

    Family = CounterMetricFamily | GaugeMetricFamily

_RELAY = ("outbox", "process")
_BY: dict[str, tuple[str, tuple[str, ...]]] = {"deliveries": ("state", STATES), "holds": ("reason", HOLDS)}


class Source(Protocol):
    """What the endpoints show. Both must answer at once."""

    def snapshots(self) -> Sequence[Snapshot]:
        """Every relay that should run."""
        ...

    def backlogs(self) -> Mapping[str, Seen]:
        """By the outbox's name."""
        ...


class Text(Protocol):
    """Renders the metrics for an ``Accept`` header: the body, and its content type."""

    def __call__(self, accept: str) -> tuple[bytes, str]: ...


def make_text(source: Source) -> Text:
    """The renderer. MissingDriver (PB-003) when prometheus_client is not installed."""
    try:
        from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector
        from prometheus_client.exposition import choose_encoder
    except ModuleNotFoundError as error:
        raise MissingDriver(
            "The metrics need the package 'prometheus_client', which is not installed.",
            fix="pip install 'pillarbox[metrics]'",
        ) from error
    registry = CollectorRegistry()
    registry.register(_Collector(source))
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)

    def text(accept: str) -> tuple[bytes, str]:
        encode, content_type = choose_encoder(accept)
        return encode(registry), content_type

    return text


class _Collector:
    def __init__(self, source: Source) -> None:
        self._source = source

    def describe(self) -> list[Metric]:
        return []  # else registering would collect once, before there is anything

    def collect(self) -> Iterator[Family]:
        yield _gauge("pillarbox_build_info", OTHERS["pillarbox_build_info"], ["version"], [([version("pillarbox")], 1)])
        snapshots = self._source.snapshots()
        yield from _relay_counters(snapshots)
        yield from _relay_gauges(snapshots)
        yield from _outboxes(self._source.backlogs())


def _relay_counters(snapshots: Sequence[Snapshot]) -> Iterator[Family]:
    for name in dict.fromkeys(name for snapshot in snapshots for name in snapshot.counters if name not in NO_COUNTERS):
        yield _counter(
            f"pillarbox_relay_{name}",
            RELAY_COUNTERS.get(name, name),
            _RELAY,
            [(_labels(s), s.counters[name]) for s in snapshots if name in s.counters],
        )
    restarts = "pillarbox_relay_restarts"
    yield _counter(restarts, OTHERS[f"{restarts}_total"], _RELAY, [(_labels(s), s.restarts) for s in snapshots])


def _relay_gauges(snapshots: Sequence[Snapshot]) -> Iterator[Family]:
    for name, help_text in RELAY_GAUGES.items():
        values = [(_labels(s), _gauge_of(s, name)) for s in snapshots]
        yield _gauge(f"pillarbox_relay_{name}", help_text, _RELAY, [(at, v) for at, v in values if v is not None])


def _gauge_of(snapshot: Snapshot, name: str) -> float | None:
    value = {"live": snapshot.health.live, "ready": snapshot.health.ready}.get(name, snapshot.health.details.get(name))
    return float(value) if isinstance(value, (bool, int, float)) else None


def _outboxes(backlogs: Mapping[str, Seen]) -> Iterator[Family]:
    for name, help_text in OUTBOX_GAUGES.items():
        by, known = _BY.get(name, ("", ()))
        found = [
            ([outbox, *([key] if by else [])], value)
            for outbox, seen in backlogs.items()
            for key, value in _figures(seen, known).get(name, {}).items()
        ]
        yield _gauge(f"pillarbox_outbox_{name}", help_text, ["outbox", *([by] if by else [])], found)
    errors = "pillarbox_outbox_look_errors"
    yield _counter(errors, OTHERS[f"{errors}_total"], ["outbox"], [([o], s.errors) for o, s in backlogs.items()])


def _figures(seen: Seen, known: Sequence[str]) -> Mapping[str, Mapping[str, float]]:
    """Gauge -> (label or nothing) -> value. Nothing at all before the first look: no figure is not zero."""
    found = seen.backlog
    if found is None:
        return {}
    empty = dict.fromkeys(known, 0)
    return {
        "deliveries": empty | dict(found.states),
        "holds": empty | dict(found.holds),
        "oldest_seconds": {"": found.oldest_age or 0.0},
        "relays": {"": found.relays},
        "partitions_unowned": {"": found.unowned},
        "look_age_seconds": {"": seen.age},
        "look_duration_seconds": {"": seen.took},
    }


def _labels(snapshot: Snapshot) -> list[str]:
    return [snapshot.outbox, str(snapshot.process)]


Values = Sequence[tuple[Sequence[str], float]]


def _gauge(name: str, help_text: str, labels: Sequence[str], values: Values) -> Family:
    from prometheus_client.core import GaugeMetricFamily

    return _filled(GaugeMetricFamily(name, help_text, labels=labels), values)


def _counter(name: str, help_text: str, labels: Sequence[str], values: Values) -> Family:
    from prometheus_client.core import CounterMetricFamily

    return _filled(CounterMetricFamily(name, help_text, labels=labels), values)


def _filled(family: Family, values: Values) -> Family:
    for labels, value in values:
        family.add_metric(labels, value)
    return family
