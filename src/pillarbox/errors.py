"""Every error a user can meet: one base, one stable code each, a sentence and a fix.

The class docstring is the sentence that explains the error; ``docs/errors.md`` has a section for each code.
"""

from __future__ import annotations

from typing import ClassVar


class PillarboxError(Exception):
    """Something Pillarbox refuses or cannot do."""

    code: ClassVar[str] = "PB-000"
    fix: ClassVar[str] = ""

    def __init__(self, message: str, *, fix: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.how_to_fix = self.fix if fix is None else fix

    def __str__(self) -> str:
        tail = f" Fix: {self.how_to_fix}" if self.how_to_fix else ""
        return f"[{self.code}] {self.message}{tail}"


class PillarboxWarning(UserWarning):
    """Something that works but was not tested, or will stop working."""


# Configuration and connections ------------------------------------------------------------------------------------


class ConfigError(PillarboxError):
    """A setting is unknown or its value cannot be used."""

    code = "PB-001"
    fix = "Correct the setting; `pillarbox config show` prints each value and where it came from."


class BadUrl(PillarboxError):
    """A database or broker URL cannot be understood."""

    code = "PB-002"
    fix = "Use e.g. mysql+pymysql://user:pw@host/db, postgresql+psycopg://…, kafka://host:9092, amqp://…, embedded:///path."


class MissingDriver(PillarboxError):
    """The client library for this database or broker is not installed."""

    code = "PB-003"


class DatabaseUnavailable(PillarboxError):
    """The database does not answer."""

    code = "PB-004"
    fix = "Check that the server runs and that host and port are right; nothing was lost, the command can be run again."


class BrokerUnavailable(PillarboxError):
    """The broker does not answer."""

    code = "PB-005"
    fix = "Check that the broker runs and that host and port are right; committed events wait in the outbox."


class TablesMissing(PillarboxError):
    """The database has no Pillarbox tables."""

    code = "PB-006"
    fix = "Run `pillarbox init --database URL` (or `init --sql` and have the DDL applied)."


class SchemaMismatch(PillarboxError):
    """The tables were made by another schema version than this release works with."""

    code = "PB-007"
    fix = "Run `pillarbox init --database URL` with the newest release in use; it migrates in place."


class AccessRefused(PillarboxError):
    """The database or broker refused the user name, the password or the permission."""

    code = "PB-008"
    fix = "Check user, password and grants of the URL that the message names."


class InitBusy(PillarboxError):
    """Another process is creating or migrating the tables right now."""

    code = "PB-009"
    fix = "Wait for the other `pillarbox init` to finish and run it again."


# Events -----------------------------------------------------------------------------------------------------------


class InvalidEvent(PillarboxError):
    """A field of the event has the wrong type, is empty, too long or holds characters that cannot travel."""

    code = "PB-010"


class NotSerialisable(PillarboxError):
    """The payload cannot be written as JSON without loss."""

    code = "PB-011"
    fix = (
        "Use JSON types, Decimal, UUID, date and datetime, dataclasses, msgspec or pydantic models; "
        "or bytes with a content type."
    )


class PayloadTooLarge(PillarboxError):
    """The encoded payload is larger than the outbox accepts."""

    code = "PB-012"
    fix = "Store the body elsewhere and send a reference, or raise max_payload_bytes (and the broker's own limit)."


class AggregateIdMissing(PillarboxError):
    """The aggregate id is None: the row has no primary key yet."""

    code = "PB-013"
    fix = "Call session.flush() after session.add(row) and before outbox.add(...): it gives the row its id."


class NoDestination(PillarboxError):
    """The event has no destination, or an empty one."""

    code = "PB-014"
    fix = "Pass to='topic' (or Exchange(name, routing_key)), or give Outbox(routes={event type: destination})."


class NotAnEventType(PillarboxError):
    """The class carries no event type name."""

    code = "PB-015"
    fix = "Decorate it with @event_type('name', version=1), or give Event(..., type='name')."


class CannotDecode(PillarboxError):
    """The received body does not fit the declared type."""

    code = "PB-016"
    fix = "Compare the producer's type and schema version with the class the handler was registered for."


class NewerSchemaVersion(CannotDecode):
    """The event has a higher schema version than the consumer knows."""

    code = "PB-017"
    fix = "Deploy the consumer that knows it and replay the dead letter, or set Consumer(newer=...)."


# Writing to the outbox --------------------------------------------------------------------------------------------


class NoTransaction(PillarboxError):
    """The connection is in AUTOCOMMIT: the event would not commit together with the business row."""

    code = "PB-020"
    fix = "Use any isolation level but AUTOCOMMIT for the engine, connection or session that adds events."


class ForeignEngine(PillarboxError):
    """The session or connection belongs to another engine than this outbox is bound to."""

    code = "PB-021"
    fix = "Add the event through a session of the engine given to Outbox(bind=...): both rows must be in one database."


class SessionClosed(PillarboxError):
    """The session or connection was closed."""

    code = "PB-022"
    fix = "Add events while the session is open, inside its transaction."


class ImplicitCommit(PillarboxError):
    """The server committed in the middle of the transaction (DDL, LOCK TABLES and the like do that on MySQL)."""

    code = "PB-023"
    fix = "Keep DDL and other implicitly committing statements out of the transaction that adds events."


class SavepointTrap(PillarboxError):
    """SQLite's driver has not begun the transaction that SQLAlchemy believes in; a SAVEPOINT would commit alone."""

    code = "PB-024"
    fix = (
        "Create the engine with pillarbox.sqlite_engine(url), or install the recipe of docs/errors.md#pb-024 on yours."
    )


class TransactionTooLarge(PillarboxError):
    """Too many events, or too many bytes of them, in one transaction."""

    code = "PB-025"
    fix = "Split the work into several transactions, or raise max_events / max_bytes of the Outbox."


class NotAwaited(PillarboxError):
    """AsyncOutbox.add() was called but never awaited, so the event was not written; the commit is refused."""

    code = "PB-026"
    fix = "Write `await outbox.add(session, event, ...)`."


class WrongColour(PillarboxError):
    """A sync outbox was given an async session, or the other way round."""

    code = "PB-027"


class UsedAfterFork(PillarboxError):
    """A connection, relay or publisher opened before os.fork() was used in the child process."""

    code = "PB-028"
    fix = "Create engines, relays and consumers after the fork, or call engine.dispose(close=False) in the child."


class AddFailed(PillarboxError):
    """An add or a statement beside it failed, its error was swallowed, and the transaction cannot commit as a whole."""

    code = "PB-029"
    fix = "Let the error of add() end the transaction, or wrap the call in session.begin_nested() to undo just that."


# Relay, consumer, operations --------------------------------------------------------------------------------------


class DeadlineTooLong(PillarboxError):
    """The broker deadline is half the lease or more, so a slow send could outlive its claim."""

    code = "PB-030"
    fix = "Keep broker_deadline below lease / 2 (defaults: 20 s and 60 s)."


class DatabaseBusy(DatabaseUnavailable):
    """The database refused a transaction again and again with deadlocks or lock time-outs."""

    code = "PB-031"
    fix = "Look for a transaction that holds locks on the outbox tables (a purge, an open session, DDL)."


class LeaseMismatch(PillarboxError):
    """Relays that lease rows and relays that lease partitions cannot work on the same tables at the same time."""

    code = "PB-032"
    fix = "Stop the relays of the other kind first, or start this one with the same `relay.ownership`."


class RelayIdTaken(PillarboxError):
    """Another relay with the same ``relay.id`` is alive: what both own under one name cannot be told apart."""

    code = "PB-034"
    fix = "Give each relay its own relay.id, or none: then it is made of host, process and chance."


class BadTablePrefix(PillarboxError):
    """The text before the names of the tables has letters that not every server takes as they are, or is too long."""

    code = "PB-033"
    fix = 'Use a-z, 0-9 and _, a letter first, at most 32 characters: table_prefix = "shop_".'


class BadHandler(PillarboxError):
    """A handler's parameters cannot be resolved."""

    code = "PB-040"
    fix = "Annotate one parameter Received[T] and, if wanted, one Session or Connection; the names must be importable."


class BadConsumer(PillarboxError):
    """The consumer cannot run as it is configured."""

    code = "PB-041"


class SourceMissing(PillarboxError):
    """A topic or queue that the consumer reads does not exist."""

    code = "PB-042"
    fix = "Create the topic or queue, or correct `sources`."


class HandlerEndedTransaction(PillarboxError):
    """The handler committed, rolled back or closed the session that belongs to the consumer."""

    code = "PB-043"
    fix = "Leave commit and rollback to the consumer: the inbox mark and the handler's writes commit together."


class EffectInDoubt(PillarboxError):
    """A call outside was begun before, and whether it was done is not known."""

    code = "PB-044"
    fix = "Find out, `pillarbox effects resolve` it, and let the event come again (replay its dead letter)."


class EffectNotDone(PillarboxError):
    """A call outside was not done, and may be tried again."""

    code = "PB-045"
    fix = "Nothing to do: the next delivery of the event calls again."


class EffectRefused(PillarboxError):
    """A call outside was refused for good; what was done before it for the same event is undone."""

    code = "PB-046"
    fix = "Catch it in the handler and do what the business wants then; uncaught, it sets the event aside."


class EffectPending(EffectInDoubt):
    """Whether a call outside was done is not known yet, and will be: the next delivery of the event looks again."""

    code = "PB-052"
    fix = "Nothing to do: the next delivery of the event looks again."

    def __init__(self, message: str, *, seconds: float = 0.0, fix: str | None = None) -> None:
        super().__init__(message, fix=fix)
        self.seconds = seconds
        """How long to wait before it is worth a look."""


class EventTypeTwice(PillarboxError):
    """Two classes of one consumer are the same event type in the same version."""

    code = "PB-053"
    fix = "Keep one class for both handlers, or let the second take Received[Any]."


class EffectNotFound(PillarboxError):
    """No effect in doubt has this id."""

    code = "PB-047"
    fix = "`pillarbox effects list` shows what is in doubt."


class UnknownEventType(PillarboxError):
    """The consumer has no handler for the type of an event, and was told not to skip such events."""

    code = "PB-048"
    fix = "Register a handler for it, or let the consumer skip it: Consumer(unknown='skip')."


class HandlerTimedOut(PillarboxError):
    """A handler took longer than the consumer's ``handler_timeout``, and was interrupted."""

    code = "PB-049"
    fix = "The log has its stack. Give what it waits for a time-out of its own, or allow it more time."


class DeadLetterNotFound(PillarboxError):
    """No dead letter has this event id."""

    code = "PB-050"
    fix = "`pillarbox dead list` shows what there is."


class NotImportable(PillarboxError):
    """The object named as module:attribute cannot be imported or is not what the command needs."""

    code = "PB-051"
    fix = "Name it as package.module:attribute and run the command where that module can be imported."


class DemoFailed(PillarboxError):
    """The demo's own processes did not do their work in time."""

    code = "PB-060"
    fix = "Read the log that the message quotes; on a slow machine, run it with fewer --orders."


class CannotListen(PillarboxError):
    """An address cannot be listened on: that of the health and metrics endpoints, or of a proxy of the lab."""

    code = "PB-080"
    fix = "Give a free port and an address of this machine: --http 127.0.0.1:9464."


# Retention --------------------------------------------------------------------------------------------------------


class PrunerElsewhere(PillarboxError):
    """Another pruner is at work on this database."""

    code = "PB-070"
    fix = "Nothing to do: it removes what this one would have. If it hangs, its database session holds the lock."


class ArchiveFailed(PillarboxError):
    """The function that archives events raised an error; nothing that it was given has been removed."""

    code = "PB-071"
    fix = "Correct the function; the next run gives it the same events again."


class PartitionsUnfit(PillarboxError):
    """The tables are not partitioned in a way that lets whole partitions be dropped."""

    code = "PB-072"
    fix = "Partition outbox_event and outbox_receipt by RANGE (id), see the retention chapter of docs/operations.md."


# The lab ----------------------------------------------------------------------------------------------------------


class LabError(PillarboxError):
    """The fault lab cannot run here, or will not: it works among names of its own only."""

    code = "PB-100"
    fix = "The message names what is in the way; the lab has touched nothing that it did not make itself."


class ProxyClosed(PillarboxError):
    """A fault was asked of a proxy that is closed, or that does not come round to it."""

    code = "PB-110"
    fix = "Use the proxy inside its `with` block, or before its close()."


class PointNotReached(PillarboxError):
    """A fault was to strike at a named point, and the point was never reached."""

    code = "PB-111"
    fix = "Check the point's name (pillarbox.faultpoints.POINTS), and that the code comes past it in the block."
