"""Who owns which partition: looking, taking by compare-and-set, renewing, letting go.

Judged by the database's clock alone. A partition is free when it has no owner, when its lease ended, or when the end is
further away than its lease is long, which no clock that ran on can have written.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, text

from ...ports import Fleet, Partition, PartitionState, Progress, Tenure
from ..dbtime import after, age, now
from . import holds

_FENCE: Final = "partition_no = :number AND owner = :owner AND token = :token AND nonce = :nonce"
NONCE_BITS: Final = 62


class Wanted(NamedTuple):
    """Partitions to take, each with the nonce it will have: by it a repeated attempt knows what the first one took."""

    nonces: Mapping[int, int]
    owner: str
    lease: float

    @classmethod
    def of(cls, partition_nos: Sequence[int], owner: str, lease: float) -> Wanted:
        """With fresh nonces."""
        return cls({number: secrets.randbits(NONCE_BITS) for number in sorted(set(partition_nos))}, owner, lease)


def fleet(connection: Connection) -> Fleet:
    """One statement. Primary keys of two small tables."""
    rows = connection.execute(
        text(
            f"SELECT -1 AS n, relay_id AS who, 0 AS free, 0 AS left_for FROM outbox_relay"
            f" WHERE lease = 'partition' AND seen_until > {now(connection)}"
            f" UNION ALL SELECT partition_no, owner, CASE WHEN {_free(connection)} THEN 1 ELSE 0 END,"
            f" -{age(connection, 'leased_until')} FROM outbox_partition"
        )
    ).all()
    states = [
        PartitionState(n, who, bool(free), 0.0 if free else max(0.0, float(s))) for n, who, free, s in rows if n >= 0
    ]
    return Fleet(sorted(who for n, who, _, _ in rows if n < 0), sorted(states))


def owners(connection: Connection, partition_nos: Sequence[int]) -> dict[int, tuple[str, int]]:
    """Owner ('' for none) and token by partition; locks nothing."""
    numbers = ", ".join(str(int(number)) for number in partition_nos) or "-1"
    sql = f"SELECT partition_no, owner, token FROM outbox_partition WHERE partition_no IN ({numbers})"
    return {number: (owner, token) for number, owner, token in connection.execute(text(sql))}


def acquire(connection: Connection, wanted: Wanted) -> list[Partition]:
    """Take what is free of the wanted partitions, in the open transaction, in their order."""
    last_event = connection.execute(text("SELECT MAX(id) FROM outbox_event")).scalar() or 0
    taken = [found for row in _free_ones(connection, wanted) if (found := _take(connection, wanted, row, last_event))]
    held = holds.of_partitions(connection, [one.tenure.partition_no for one in taken]) if taken else []
    return [
        one._replace(holds=[hold for hold in held if hold.stream.partition_no == one.tenure.partition_no])
        for one in taken
    ]


def extend(connection: Connection, owner: str, lease: float, tenures: Sequence[Tenure]) -> list[Tenure]:
    """Renew the leases; returns those that are lost."""
    if extend_all(connection, owner, lease, tenures):
        return []
    until = after(connection, f"{lease:f}")
    sql = text(f"UPDATE outbox_partition SET leased_until = {until}, lease_ms = :lease_ms WHERE {_FENCE}")
    milliseconds = lease_ms(lease)
    return [
        one
        for one in sorted(tenures)
        if not connection.execute(sql, {**_fence(one, owner), "lease_ms": milliseconds}).rowcount
    ]


def extend_all(connection: Connection, owner: str, lease: float, tenures: Sequence[Tenure]) -> bool:
    """All of them in one statement, where it can be told to lock them in the order of the key, as a settlement does.

    False: some are lost, or this server cannot (there is nothing to renew, too).
    """
    dialect = connection.dialect.name
    if not tenures or dialect == "sqlite":
        return False
    fences = " OR ".join(
        f"(partition_no = {one.partition_no:d} AND token = {one.token:d} AND nonce = {one.nonce:d})" for one in tenures
    )
    mine = f"owner = :owner AND ({fences})"
    hint = " FORCE INDEX (PRIMARY)"
    if dialect == "postgresql":
        # An UPDATE alone locks in the order in which it meets the rows.
        hint = ""
        locked = f"SELECT partition_no FROM outbox_partition WHERE {mine} ORDER BY partition_no FOR NO KEY UPDATE"
        mine = f"{mine} AND partition_no = ANY(ARRAY({locked}))"
    return connection.execute(
        text(
            f"UPDATE outbox_partition{hint} SET leased_until = {after(connection, f'{lease:f}')},"
            f" lease_ms = :lease_ms WHERE {mine}"
        ),
        {"lease_ms": lease_ms(lease), "owner": owner},
    ).rowcount == len(tenures)


def release(connection: Connection, owner: str, progress: Sequence[Progress]) -> None:
    """Give partitions up; stale tenures change nothing."""
    sql = text(
        "UPDATE outbox_partition SET owner = '', leased_until = '1970-01-01 00:00:00', low_id = :low,"
        f" handed_to = :handed, careful_to = :careful, crashes = :crashes WHERE {_FENCE}"
    )
    for one in sorted(progress):
        state = {"low": one.low_id, "handed": one.handed_to, "careful": one.careful_to, "crashes": one.crashes}
        connection.execute(sql, {**_fence(one.tenure, owner), **state})


def lease_ms(lease: float) -> int:
    """The length that no end may exceed."""
    return -int(-lease * 1_000 // 1)


def _fence(tenure: Tenure, owner: str) -> dict[str, Any]:
    return {"number": tenure.partition_no, "owner": owner, "token": tenure.token, "nonce": tenure.nonce}


def _free(connection: Connection) -> str:
    impossible = after(connection, "lease_ms / 1000.0")
    return f"(owner = '' OR leased_until <= {now(connection)} OR leased_until > {impossible})"


def _free_ones(connection: Connection, wanted: Wanted) -> Sequence[Any]:
    """Free partitions, and those that an earlier attempt took whose commit went through unheard. Locks nothing."""
    numbers = ", ".join(map(str, wanted.nonces)) or "-1"
    return connection.execute(
        text(
            "SELECT partition_no, owner, token, nonce, low_id, handed_to, careful_to, crashes FROM outbox_partition"
            f" WHERE partition_no IN ({numbers}) AND ({_free(connection)} OR owner = :me) ORDER BY partition_no"
        ),
        {"me": wanted.owner},
    ).all()


def _take(connection: Connection, wanted: Wanted, row: Any, last_event: int) -> Partition | None:
    number, owner, token, nonce, low_id, handed_to, careful_to, crashes = row
    if owner == wanted.owner and nonce == wanted.nonces[number]:
        return Partition(Tenure(number, token, nonce), low_id, careful_to, crashes, ())
    if owner and handed_to:  # not released, with events on their way: the owner crashed
        crashes, careful_to = crashes + 1, max(careful_to, min(handed_to, last_event))
    low_id = low_id if low_id <= last_event else 0  # ids are used again after a restore
    tenure = Tenure(number, token + 1, wanted.nonces[number])
    sql = (
        f"UPDATE outbox_partition SET owner = :me, token = token + 1, nonce = :fresh, lease_ms = :lease_ms,"
        f" leased_until = {after(connection, f'{wanted.lease:f}')}, low_id = :low, handed_to = 0,"
        f" careful_to = :careful, crashes = :crashes WHERE {_FENCE} AND {_free(connection)}"
    )
    state = {"low": low_id, "careful": careful_to, "crashes": min(crashes, 32_767), "fresh": tenure.nonce}
    found = {**_fence(Tenure(number, token, nonce), owner), "me": wanted.owner, "lease_ms": lease_ms(wanted.lease)}
    if not connection.execute(text(sql), {**state, **found}).rowcount:
        return None  # another relay was quicker
    return Partition(tenure, low_id, careful_to, crashes, ())
