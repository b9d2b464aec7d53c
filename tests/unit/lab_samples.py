"""A run of the lab made of values: every kind of cell, surprises, hostile texts, facts that were not visible."""

from __future__ import annotations

from dataclasses import replace

from pillarbox.lab.model import (
    CellKey,
    CellResult,
    EventId,
    Exit,
    Facts,
    Fail,
    Impossible,
    Kill,
    Lane,
    Moment,
    NotRun,
    NotVisible,
    Outcome,
    Planned,
    Record,
    Row,
    Run,
    RunFacts,
    Verdict,
)

START = 1_796_126_400.0  # 2026-12-01 12:00 UTC
HOSTILE = EventId("</td><script>alert(1)</script>&\u202e\x07\ud800")


def event(number: int) -> EventId:
    return EventId(f"01935f2e-7c1a-7000-8000-{number:012x}")


def row(table: str, event_id: EventId, at: float, **more: str | None) -> Row:
    return Row(table, {"event_id": event_id, **more}, at)


def record(event_id: EventId, offset: int, at: float) -> Record:
    headers = {"event-id": event_id, "event-type": "alarm.raised", "content-type": "application/json"}
    return Record(event_id, f"pillarbox_lab_7c1a_w1[{offset % 3}]@{offset}", headers, at)


SETTINGS = {
    "fault point": "s1.acknowledged",
    "isolation level": "READ COMMITTED",
    "database autocommit": False,
    "acks": "all",
    "enable.idempotence": True,
    "retries": 2147483647,
    "kafka transactions": False,
    "enable.auto.commit": False,
    "synchronous_commit": "on",
    "linger": NotVisible("the client does not tell"),
}
BEFORE = {
    "topic pillarbox_lab_7c1a_w1": {
        "replication.factor": 3,
        "min.insync.replicas": 2,
        "ISR": {"0": [1, 2, 3], "1": [2, 3, 1], "2": [3, 1, 2]},
    },
    "group notification": {"committed": {"0": "-", "1": "-", "2": "-"}},
}
AFTER = {
    "topic pillarbox_lab_7c1a_w1": {
        "replication.factor": 3,
        "min.insync.replicas": 2,
        "ISR": {"0": [1, 2, 3], "1": [2, 3], "2": [3, 1, 2]},
    },
    "group notification": {"committed": {"0": 7, "1": 6, "2": 7}, "end": {"0": 7, "1": 6, "2": 7}},
}


def ghosts() -> CellResult:
    """S1 in W1: twenty ghosts."""
    ids = [event(n) for n in range(20)]
    facts = tuple(
        Facts(
            one,
            None,
            (record(one, n, START + n),),
            effects={
                "notification": (row("lab_notification", one, START + n + 0.1, id=str(n), consumer="notification"),)
            },
        )
        for n, one in enumerate(ids)
    )
    sentence = "The broker has a message of an alarm that the database never committed."
    verdicts = tuple(
        Verdict(one, False, True, frozenset({Outcome.GHOST}), {"notification": 1}, sentence) for one in ids
    )
    timeline = tuple(
        moment
        for n, one in enumerate(ids)
        for moment in (
            Moment(START + n, Lane.APPLICATION, "INSERT done, in an open transaction", one),
            Moment(START + n + 0.0031, Lane.BROKER, "record stored", one, "broker"),
            Moment(START + n + 0.0042, Lane.APPLICATION, "the broker has confirmed, the transaction is open", one),
            Moment(START + n + 0.0045, Lane.APPLICATION, "RuntimeError raised at s1.acknowledged", one, kind="fault"),
            Moment(START + n + 0.0052, Lane.APPLICATION, "the request ends with an error", one, kind="end"),
            Moment(START + n + 0.0210, Lane.CONSUMER, "received", one),
            Moment(START + n + 0.0290, Lane.DATABASE, "row of lab_notification", one, "database"),
            Moment(START + n + 0.0312, Lane.CONSUMER, "acknowledged", one),
        )
    )
    why = "The broker has the message and cannot take it back; the row is rolled back."
    return CellResult(
        CellKey("W1", "S1"),
        Planned(Fail("s1.acknowledged"), frozenset({Outcome.GHOST}), why),
        facts,
        verdicts,
        timeline,
        (Exit("application", 4711, "status 0", START + 21), Exit("consumer", 4712, "signal 15", START + 22)),
        SETTINGS,
        BEFORE,
        AFTER,
        "pillarbox lab run --window W1 --strategy S1 --rounds 20 --seed 7 --database postgresql+psycopg://lab:***@db/lab",
        4.2,
    )


def outbox(window: str = "W3r", strategy: str = "S5-row", *, duplicates: int = 20) -> CellResult:
    """The outbox: duplicates on the wire, each event applied once; the lease makes a long pause."""
    ids = [event(100 + n) for n in range(20)]

    def facts(n: int, one: EventId) -> Facts:
        at = START + 60 + n
        copies = 2 if n < duplicates else 1
        return Facts(
            one,
            row("lab_alarm", one, at, device=f"D-{n:03}"),
            tuple(record(one, n * 2 + c, at + 0.02 + 7 * c) for c in range(copies)),
            row("outbox_event", one, at, id=str(n), state="SENT", type="alarm.raised", claims="2", attempts="0"),
            (row("outbox_receipt", one, at + 7.4, relay="relay-2", place=f"[{n % 3}]@{n * 2 + 1}"),),
            {"notification": (row("inbox_event", one, at + 0.2, consumer="notification"),)},
            {"notification": (row("lab_notification", one, at + 0.2, id=str(n), consumer="notification"),)},
        )

    def verdict(n: int, one: EventId) -> Verdict:
        outcomes = frozenset({Outcome.DUPLICATE} if n < duplicates else {Outcome.NOTHING})
        return Verdict(one, True, True, outcomes, {"notification": 1}, "Told twice on the wire, applied once.")

    first = ids[0]
    at = START + 60
    timeline = (
        Moment(at, Lane.APPLICATION, "alarm and event written, in an open transaction", first),
        Moment(at + 0.0012, Lane.DATABASE, "row of lab_alarm, row of outbox_event", first, "database"),
        Moment(at + 0.0023, Lane.APPLICATION, "COMMIT has returned: alarm and event stand", first),
        Moment(at + 0.0150, Lane.RELAY, "the claim is committed, nothing is sent", first),
        Moment(at + 0.0200, Lane.BROKER, "record [0]@0 stored", first, "broker"),
        Moment(at + 0.0240, Lane.RELAY, "the broker has answered, nothing is settled", first),
        Moment(at + 0.0242, Lane.RELAY, "SIGKILL at relay.after-confirm", first, kind="fault"),
        Moment(at + 0.0250, Lane.RELAY, "ended by signal 9", None, kind="end"),
        Moment(at + 0.0310, Lane.CONSUMER, "received", first),
        Moment(at + 0.0420, Lane.DATABASE, "inbox mark and effect", first, "database"),
        Moment(at + 0.0440, Lane.CONSUMER, "acknowledged", first),
        Moment(at + 0.9, Lane.RELAY, "started again", None),
        Moment(at + 7.0150, Lane.RELAY, "the claim is committed, nothing is sent", first),
        Moment(at + 7.0200, Lane.BROKER, "record [0]@1 stored", first, "broker"),
        Moment(at + 7.0240, Lane.RELAY, "the broker has answered, nothing is settled", first),
        Moment(at + 7.0300, Lane.RELAY, "settled and committed", first),
        Moment(
            at + 7.0420,
            Lane.CONSUMER,
            "received; the inbox has its mark already, so that nothing is done, and it is acknowledged",
            first,
        ),
    )
    why = "What the dead relay knew is gone; the next one sends again: twice on the wire, once in the inbox."
    return CellResult(
        CellKey(window, strategy),
        Planned(Kill("relay.after-confirm"), frozenset({Outcome.DUPLICATE}), why),
        tuple(facts(n, one) for n, one in enumerate(ids)),
        tuple(verdict(n, one) for n, one in enumerate(ids)),
        timeline,
        tuple(Exit("relay", 4800 + n, "signal 9", at + n) for n in range(20)),
        SETTINGS | {"fault point": "relay.after-confirm", "lease (s)": 7.0},
        BEFORE,
        AFTER,
        f"pillarbox lab run --window {window} --strategy {strategy} --rounds 20 --seed 7",
        31.7,
    )


def losses(window: str = "W2", strategy: str = "S2", *, hostile: bool = False) -> CellResult:
    """Committed and never told; with ``hostile``, an id and texts that want to be more than text."""
    ids = [HOSTILE if hostile and n == 0 else event(200 + n) for n in range(20)]
    text = "<img src=x onerror=alert(1)> https://evil.example/?a=1&b=2 ``` | \x1b[31m" + "x" * 5000
    facts = tuple(
        Facts(
            one,
            row("lab_alarm", one, START + n, device=text if hostile else f"D-{n}"),
            (),
            NotVisible("no outbox here"),
        )
        for n, one in enumerate(ids)
    )
    timeline = (
        Moment(START, Lane.APPLICATION, "INSERT done, in an open transaction", ids[0]),
        Moment(START + 0.002, Lane.DATABASE, "row of lab_alarm", ids[0], "database"),
        Moment(START + 0.0023, Lane.APPLICATION, "COMMIT has returned, nothing is sent", ids[0]),
        Moment(START + 0.0024, Lane.APPLICATION, text if hostile else "SIGKILL at s2.committed", ids[0], kind="fault"),
        Moment(START + 0.0031, Lane.APPLICATION, "ended by signal 9", ids[0], kind="end"),
    )
    why = "The row stands, and that it was to be told was only in the dead process's memory."
    return CellResult(
        CellKey(window, strategy),
        Planned(Kill("s2.committed"), frozenset({Outcome.LOSS}), text if hostile else why),
        facts,
        tuple(Verdict(one, True, False, frozenset({Outcome.LOSS}), {"notification": 0}, "Lost.") for one in ids),
        timeline,
        tuple(Exit("application", 5000 + n, "signal 9", START + n) for n in range(20)),
        {text[:80]: text} if hostile else SETTINGS,
        command=text if hostile else f"pillarbox lab run --window {window} --strategy {strategy} --rounds 20 --seed 7",
        seconds=3.3,
    )


def calm(window: str, strategy: str, why: str) -> CellResult:
    """Nothing left behind."""
    base = outbox(window, strategy, duplicates=0)
    return replace(base, plan=Planned(Kill("s5.added"), frozenset({Outcome.NOTHING}), why))


def doubled(strategy: str = "C1") -> CellResult:
    """The race of looking first: applied twice in most rounds, as possible, not in all."""
    base = outbox("W4r", strategy)
    verdicts = tuple(
        replace(
            one,
            outcomes=frozenset({Outcome.TWICE, Outcome.DUPLICATE} if n < 17 else {Outcome.DUPLICATE}),
            applied={"notification": 2 if n < 17 else 1},
        )
        for n, one in enumerate(base.verdicts)
    )
    plan = Planned(
        Kill("c1.looked"),
        frozenset({Outcome.TWICE}),
        "Both look before either has written.",
        frozenset({Outcome.DUPLICATE}),
    )
    return replace(base, plan=plan, verdicts=verdicts)


def unseen() -> CellResult:
    """A broker that no longer shows what it held."""
    base = losses("W3", "S3")
    facts = tuple(
        replace(one, records=NotVisible("the queue was read and holds nothing any more")) for one in base.facts
    )
    verdicts = tuple(replace(one, broker=None, outcomes=frozenset({Outcome.DUPLICATE})) for one in base.verdicts)
    plan = Planned(
        Fail("sender.acknowledged"),
        frozenset({Outcome.DUPLICATE}),
        "It takes the lost answer for a failure and sends again; the broker cannot know that it is the same.",
    )
    return replace(base, facts=facts, verdicts=verdicts, plan=plan)


def surprise() -> CellResult:
    """Expected nothing; one event was lost."""
    base = calm(
        "W2", "S5-row", "What is to be told was committed with the alarm; the relay needs nothing of the dead process."
    )
    lost = replace(
        base.verdicts[3],
        broker=False,
        outcomes=frozenset({Outcome.LOSS}),
        applied={"notification": 0},
        sentence="The outbox row is gone, and no message is there.",
    )
    return replace(base, verdicts=(*base.verdicts[:3], lost, *base.verdicts[4:]))


RUN_FACTS = RunFacts(
    START,
    7,
    20,
    {"Pillarbox": "0.1.0", "Python": "3.11.2", "PostgreSQL": "15.20", "Kafka": "4.4.0", "confluent-kafka": "2.14.0"},
    {
        "database": {
            "database": "postgres",
            "server_version": "15.20",
            "isolation": "READ COMMITTED",
            "synchronous_commit": "on",
        },
        "broker": {"broker": "kafka", "nodes": ["1", "2", "3"], "rack": NotVisible("not configured")},
    },
    {"postgres": 0.0004, "kafka": -0.0031, "rabbitmq": NotVisible("AMQP has no way to ask for the time")},
    "pillarbox lab run --rounds 20 --seed 7 --database postgresql+psycopg://lab:***@db/lab --broker kafka://k1:9092",
)

NO_RELAY = Impossible("There is no relay: whoever commits also sends.")
LATER = Impossible("Nothing is sent before COMMIT has returned, so nothing can be confirmed before it.")


def sample_run(*, surprises: bool = True) -> Run:
    """Most of a matrix, both grids."""
    cdc = "What is committed is in the log, whoever is dead."
    cells = (
        ghosts(),
        CellResult(CellKey("W1", "S2"), LATER),
        CellResult(CellKey("W1", "S3"), LATER),
        calm("W1", "S5-row", "The event is a row of the same transaction; a relay sees it only once it is committed."),
        calm(
            "W1",
            "S5-partition",
            "The event is a row of the same transaction; a relay sees it only once it is committed.",
        ),
        CellResult(
            CellKey("W2", "S1"),
            Impossible("It sends before COMMIT: when the database has committed, the message is out."),
        ),
        losses("W2", "S2", hostile=surprises),
        losses("W2", "S3"),
        surprise()
        if surprises
        else calm(
            "W2",
            "S5-row",
            "What is to be told was committed with the alarm; the relay needs nothing of the dead process.",
        ),
        calm(
            "W2",
            "S5-partition",
            "What is to be told was committed with the alarm; the relay needs nothing of the dead process.",
        ),
        CellResult(
            CellKey("W2", "S6"),
            NotRun(frozenset({Outcome.NOTHING}), cdc, "Pillarbox does not read the database's log yet."),
        ),
        unseen(),
        outbox("W3", "S5-row"),
        CellResult(CellKey("W3r", "S1"), NO_RELAY),
        outbox("W3r", "S5-row"),
        outbox("W3r", "S5-partition"),
        CellResult(
            CellKey("W3r", "S6"),
            NotRun(frozenset({Outcome.DUPLICATE}), cdc, "Pillarbox does not read the database's log yet."),
        ),
        CellResult(
            CellKey("B2", "S4"),
            NotRun(
                frozenset({Outcome.LOSS}),
                "The database's commit raises an error although it stands, so Kafka's transaction is aborted.",
                "SQLite is a file that the process itself writes: there is no answer that could be lost on the way.",
            ),
        ),
        doubled(),
        replace(doubled(), key=CellKey("W4r", "C0")),
        calm("W4r", "C2", "The second mark breaks the unique key, and its transaction rolls back."),
        replace(
            losses("W4", "CA"),
            verdicts=tuple(
                Verdict(event(n), True, True, frozenset({Outcome.SKIPPED}), {"notification": 0}) for n in range(20)
            ),
            plan=Planned(Kill("ca.acknowledged"), frozenset({Outcome.SKIPPED}), "Acknowledged before it was done."),
        ),
        *(
            (
                CellResult(
                    CellKey("W4", "C1"),
                    Planned(Kill("c1.committed"), frozenset({Outcome.TWICE}), "Why."),
                    trouble="BrokerUnavailable: [PB-005] kafka://k1:9092 does not answer.",
                ),
            )
            if surprises
            else ()
        ),
    )
    return Run(RUN_FACTS, cells, complete=not surprises)
