"""A soak from its beginning to its end: ground, crew, storm, calm, accounting."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from ...errors import LabError
from ...masking import mask_whole_url
from ...store.engines import relay_engine
from ..grounds import broker_ground, database_ground, refuse_foreign, remove_leftovers
from ..grounds.claims import claim
from ..grounds.folders import own_folder
from ..model import NotVisible, Record
from ..ports import BrokerGround, DatabaseGround
from ..verdict import judge
from ..versions import versions
from . import tables
from .accounts import Finding, balance
from .crew import Crew
from .disturbing import Disturbances
from .gauge import Gauge
from .happened import Happened
from .links import Links, linked
from .options import SoakOptions
from .reading import read_books
from .result import Evidence, SoakResult
from .roles import adding, engine_for
from .schedule import schedule
from .storm import Storm, wait_until_at_rest
from .suspects import replay_suspects
from .tasks import modules, tasks

SUSPECTS_EVERY: Final = 5.0  # seconds between looks for events that were taken for poison
SHOWN_FINDINGS: Final = 10
BEGIN_DEADLINE: Final = 60.0  # seconds until the first event has gone all the way
ROLES: Final = ("relay", "consumer", "writer")


@dataclass(frozen=True, slots=True)
class Progress:
    """What is to be seen while it runs: ``stage`` is storm, drain, closing or accounting."""

    stage: str
    seconds: float
    of: float
    kills: int
    waiting: int
    written: int
    applied: int


Show = Callable[[Progress], None]


@dataclass(slots=True)
class _Soak:
    """The running parts of one soak."""

    options: SoakOptions
    database: DatabaseGround
    broker: BrokerGround
    folder: Path
    show: Show
    consumer: str
    happened: list[Happened] = field(default_factory=list)
    complete: bool = True
    suspects: int = 0

    def tell(self, happened: Happened) -> None:
        self.happened.append(happened)

    def showing(self, stage: str, of: float, gauge: Gauge) -> Callable[[float], None]:
        """A function that shows this stage after so many seconds."""

        def show(seconds: float) -> None:
            last = gauge.samples[-1] if gauge.samples else None
            kills = sum(one.kind == "kill" for one in self.happened)
            found = (last.waiting, last.written, last.applied) if last else (0, 0, 0)
            self.show(Progress(stage, seconds, of, kills, *found))

        return show


def run_soak(options: SoakOptions, show: Show = lambda _: None, *, command: str = "") -> SoakResult:
    """Run it, and return what was found. What was made on the servers is removed at the end, also after an error.

    One KeyboardInterrupt ends the storm early and goes on to the accounting. Raises BadUrl, AccessRefused,
    DatabaseUnavailable, BrokerUnavailable or LabError when it cannot begin, or not come to its end.
    """
    if not hasattr(os, "fork"):
        raise LabError("The soak kills and freezes processes with POSIX signals, which this system does not have.")
    began, load = time.time(), os.getloadavg()
    refuse_foreign(options.database, options.broker)
    remove_leftovers(options.database, options.broker)
    with (
        _folder(options) as folder,
        database_ground(options.database, "soak") as database,
        broker_ground(options.broker, "soak") as broker,
    ):
        soak = _Soak(options, database, broker, folder, show, f"{broker.destination.name}.notifier")
        shop = relay_engine(database.shop_url, pool_size=1)
        tables.make(shop, options.keys)
        shop.dispose()
        servers = {"database": dict(database.settings()), "broker": dict(broker.settings()) | dict(broker.state())}
        with (
            linked(database, broker, soak.tell, kafka_via=options.kafka_via) as links,
            Gauge(database.shop_url, database.consumers_url) as gauge,
            Crew(
                options.members,
                tasks(options, broker, links, soak.consumer),
                folder,
                soak.tell,
                seed=options.seed,
                modules=modules(options),
            ) as crew,
        ):
            drained, drain_seconds = _run(soak, crew, links, gauge)
            starts = _starts(crew)
        soak.show(Progress("accounting", 0.0, 0.0, 0, 0, 0, 0))
        records = broker.records()
        books = read_books(database.shop_url, database.consumers_url, soak.consumer, records)
        accounts = balance(books, ordered=options.ordered)
        return SoakResult(
            command=command,
            began=began,
            seconds=time.time() - began,
            options=_plain(options),
            versions=versions(),
            servers=servers,
            machine={"cores": os.cpu_count(), "load_before": load, "load_after": os.getloadavg()},
            happened=tuple(soak.happened),
            samples=tuple(gauge.samples),
            accounts=accounts,
            drained=drained,
            drain_seconds=drain_seconds,
            complete=soak.complete,
            evidence=_evidence(database, accounts.findings[:SHOWN_FINDINGS], records, soak.consumer),
            links_absent={str(link): why for link, why in links.absent.items()},
            starts=starts,
            suspects=soak.suspects,
        )


def _run(soak: _Soak, crew: Crew, links: Links, gauge: Gauge) -> tuple[bool, float]:
    options = soak.options
    with Disturbances(
        options.disturb, soak.folder / "disturb.log", soak.tell, deadline=options.disturb_deadline
    ) as disturbances:
        storm = Storm(crew, links, disturbances, soak.tell, soak.showing("storm", options.seconds, gauge))
        _wait_for_work(crew, gauge)
        soak.tell(Happened(time.time(), "stage", "soak", "the storm begins"))
        try:
            storm.rage(schedule(options), options.seconds)
        except KeyboardInterrupt:
            soak.complete = False
        soak.tell(Happened(time.time(), "stage", "soak", "the faults end"))
        storm.calm()
    # A last kill of everybody: what comes after is a start after a power cut, without any fault.
    crew.end(ROLES, kill=True)
    soak.tell(Happened(time.time(), "stage", "soak", "everything was killed and is started again, without the writers"))
    crew.begin(("relay", "consumer"))
    drained, seconds = _drain(soak, crew, gauge)
    soak.tell(Happened(time.time(), "stage", "soak", "drained" if drained else "not drained within the bound"))
    if drained:
        drained = _close(soak, crew, gauge)
    crew.end(("relay", "consumer"))
    return drained, seconds


def _drain(soak: _Soak, crew: Crew, gauge: Gauge) -> tuple[bool, float]:
    """Until all is sent and applied; what was taken for poison in the storm is replayed, as an operator would."""
    bound, spent = soak.options.drain, 0.0
    show = soak.showing("drain", bound, gauge)

    def show_drain(seconds: float) -> None:
        show(spent + seconds)

    while spent < bound:
        done, seconds = wait_until_at_rest(gauge, crew, min(SUSPECTS_EVERY, bound - spent), show_drain)
        spent += seconds
        if done:
            return True, spent
        if suspects := replay_suspects(soak.database.shop_url):
            soak.suspects += suspects
            what = f"{suspects} events had been set aside as suspects of a crash loop, and are replayed"
            soak.tell(Happened(time.time(), "stage", "soak", what))
    return False, spent


def _wait_for_work(crew: Crew, gauge: Gauge) -> None:
    """Until the first event is applied: before that, a kill would hit nobody at work."""
    deadline = time.monotonic() + BEGIN_DEADLINE
    while not (gauge.samples and gauge.samples[-1].applied):
        crew.tend(0.05)
        if time.monotonic() > deadline:
            raise LabError(
                f"Nothing was written, sent and applied within {BEGIN_DEADLINE:g} s, without any fault.",
                fix="Run it with --out and read the processes' logs there.",
            )


def _close(soak: _Soak, crew: Crew, gauge: Gauge) -> bool:
    """Write one last event for each key, and wait for them: then all that the broker had before them was applied, too.

    Without them, a second copy that still lies unread in the broker would be missing from the account of what was
    applied twice.
    """
    engine = engine_for(soak.database.shop_url)
    add = adding(engine, soak.broker.destination)
    names = tables.names(soak.options.keys)
    for at in range(0, len(names), 20):
        add(names[at : at + 20])
    engine.dispose()
    done, _ = wait_until_at_rest(gauge, crew, soak.options.drain, soak.showing("closing", soak.options.drain, gauge))
    return done


def _evidence(
    database: DatabaseGround, findings: Sequence[Finding], records: Sequence[Record], consumer: str
) -> tuple[Evidence, ...]:
    if not findings:
        return ()
    ids = dict.fromkeys(one.event_id for one in findings)
    theirs: Sequence[Record] | NotVisible = [one for one in records if one.event_id in ids]
    facts = {one.event_id: one for one in database.facts([*ids], theirs)}  # type: ignore[list-item]
    return tuple(
        Evidence(one, found, judge(found, [consumer]))
        for one in findings
        if (found := facts.get(one.event_id)) is not None  # type: ignore[call-overload]
    )


def _starts(crew: Crew) -> dict[str, int]:
    return {role: sum(one.starts for one in crew.members if one.role == role) for role in ROLES}


def _plain(options: SoakOptions) -> dict[str, Any]:
    """Options as the report shows them: without passwords."""
    found = asdict(options)
    for name in ("database", "broker"):
        if found[name] is not None:
            found[name] = mask_whole_url(found[name])
    found["out"] = None if options.out is None else str(options.out)
    return found


@contextmanager
def _folder(options: SoakOptions) -> Iterator[Path]:
    """Where the processes' logs go: kept below ``out``, else gone at the end."""
    with ExitStack() as cleanup:
        if options.out is None:
            claimed = cleanup.enter_context(claim("folder", "soak"))
            cleanup.enter_context(own_folder(claimed))
            folder = claimed.folder
        else:
            folder = options.out / "logs"
            folder.mkdir(parents=True, exist_ok=True)
        yield folder
