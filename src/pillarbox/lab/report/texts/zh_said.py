"""The lab's own sentences (of plans, reasons and timelines) in Chinese, by the English one."""

# ruff: noqa: RUF001 - full-width punctuation is what Chinese is written with

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

_PLANS: Final = {
    # shared
    "SQLite is a file that the process itself writes: there is no answer that could be lost on the way.": (
        "SQLite 是进程自己直接写入的文件，没有会在途中丢失的答复。"
    ),
    "There is no relay: whoever commits also sends.": "没有中继：谁提交，谁发送。",
    "Nobody holds a lease while sending.": "发送时没有谁持有租约。",
    "The broker has no transaction of its own here that could fail to commit.": (
        "这里消息代理没有自己的事务，也就谈不上提交失败。"
    ),
    "Nothing is sent before COMMIT has returned, so nothing can be confirmed before it.": (
        "COMMIT 返回之前什么都没有发送，自然不会先被确认。"
    ),
    # S1
    "The broker has the message and cannot take it back; the row is rolled back.": (
        "消息已在代理手里，收不回来；数据行却被回滚了。"
    ),
    "It sends before COMMIT: when the database has committed, the message is out.": (
        "它在 COMMIT 之前发送：等到数据库提交时，消息早已发出。"
    ),
    "The client reports an error, so the transaction rolls back; the message is in the broker.": (
        "客户端报错，事务因此回滚；而消息其实已经进了代理。"
    ),
    "The transaction ends with the process, the message does not.": "事务随进程一同消失，消息却不会。",
    "Both have it. Only the program believes that it failed, and its caller will try again.": (
        "两边都有了。只有程序以为自己失败了，于是调用方会再试一次。"
    ),
    # S2
    "The row stands, and that it was to be told was only in the dead process's memory.": (
        "数据行还在，而“要通知别人”这件事只存在于已死进程的内存里。"
    ),
    "Both have it, and the program does not know. If it sent again, it would be told twice.": (
        "两边都有了，程序却不知道。它若再发一次，别人就会听到两遍。"
    ),
    "An open transaction ends with its process, and nothing was sent.": "未提交的事务随进程结束，也什么都没有发送。",
    "The commit raises an error although it stands, so the line that sends is never reached.": (
        "提交其实已经生效却抛出了错误，负责发送的那一行代码永远执行不到。"
    ),
    # S3
    "Retries are in the memory of a process, and it is dead.": "重试记在进程的内存里，而进程已经死了。",
    "It takes the lost answer for a failure and sends again: for the broker, another message.": (
        "它把丢失的答复当成失败，于是再发一次；在代理看来，那是另一条消息。"
    ),
    "An open transaction ends with its process, and the hook was never called.": (
        "未提交的事务随进程结束，钩子从未被调用。"
    ),
    "The commit raises an error although it stands, so the hook after it is not called.": (
        "提交其实已经生效却抛出了错误，它后面的钩子因此没有被调用。"
    ),
    # S4
    "Kafka's transaction is aborted with the database's; readers of committed records see nothing.": (
        "Kafka 事务随数据库事务一起中止；只读已提交消息的读者什么也看不到。"
    ),
    "The row stands. Kafka's transaction was never committed, and is aborted when its time is up.": (
        "数据行还在；Kafka 事务从未提交，到时限就被中止。"
    ),
    "Both have it: Kafka's commit stands, and only its answer is lost.": (
        "两边都有了：Kafka 的提交已经生效，丢的只是答复。"
    ),
    "Neither was committed, and both end with the process.": "两边都没有提交，都随进程结束。",
    "The database's commit raises an error although it stands, so Kafka's transaction is aborted.": (
        "数据库提交其实已经生效却抛出了错误，Kafka 事务因此被中止。"
    ),
    "The database's commit cannot be taken back when Kafka's fails behind it.": (
        "Kafka 随后提交失败时，数据库的提交已经无法撤回。"
    ),
    # S5
    "The event is a row of the same transaction; a relay sees it only once it is committed.": (
        "事件是同一个事务里的一行，提交之后中继才看得见。"
    ),
    "What is to be told was committed with the alarm; the relay needs nothing of the dead process.": (
        "要通知的内容已随告警一起提交，中继不需要死去的进程再做任何事。"
    ),
    "The relay cannot know and sends again: twice on the wire, once in the inbox.": (
        "中继无从得知，只好再发一次：线路上两次，收件箱里一次。"
    ),
    (
        "The relay cannot know and sends again: twice on the wire, once in the inbox. "
        "Of each key only the first was on its way."
    ): "中继无从得知，只好再发一次：线路上两次，收件箱里一次。每个键只有第一个事件已在途中。",
    "What the dead relay knew is gone; the next one sends again: twice on the wire, once in the inbox.": (
        "死去的中继所知道的都没了，下一个中继再发一次：线路上两次，收件箱里一次。"
    ),
    # S6
    "The log has only what was committed.": "日志里只有已提交的内容。",
    "What is committed is in the log, whoever is dead.": "已提交的内容就在日志里，无论谁死了。",
    "The connector goes on from where it noted last, and sends again what it had sent since.": (
        "连接器从上次记下的位置继续，把之后已经发过的再发一遍。"
    ),
    "A connector holds no lease on rows; Kafka Connect sees to it that one task runs.": (
        "连接器不对行持有租约；由 Kafka Connect 保证只有一个任务在运行。"
    ),
    "This release has no relay that reads the database's log.": "本版本没有读取数据库日志的中继。",
    "Only Kafka has such a transaction; this run is on embedded.": "只有 Kafka 有这种事务；本次运行用的是内嵌日志。",
    "Only Kafka has such a transaction; this run is on rabbitmq.": "只有 Kafka 有这种事务；本次运行用的是 RabbitMQ。",
    # consuming
    "It was applied and not acknowledged, so it is delivered again, and applied again.": (
        "已经执行却没有应答，于是再次投递，又执行一遍。"
    ),
    "It is delivered again, and the look finds what was committed before.": "再次投递时，一查就查到先前已提交的结果。",
    "It is delivered again, and the mark that was committed with the effect refuses it.": (
        "再次投递时，与效果一同提交的标记把它挡了回去。"
    ),
    "The broker has its acknowledgement and will not deliver it again; nobody has applied it.": (
        "代理已拿到应答，不会再投递；而谁也没有执行过它。"
    ),
    "Both deliveries are applied; nothing tells that they are one event.": (
        "两次投递都执行了，没有什么能表明它们是同一个事件。"
    ),
    "Both look before either has committed, and both find nothing.": "双方都在对方提交之前去查，于是都查不到。",
    "SQLite has one writer: the second one waits for the first one's commit, and finds the mark.": (
        "SQLite 只容一个写入者：后者等到前者提交，便会看到标记。"
    ),
    "The second one's mark waits for the first one's transaction, and is refused when it commits.": (
        "后者的标记要等前者的事务，前者一提交，后者就被拒绝。"
    ),
    "What is acknowledged on delivery is not delivered to a second one.": (
        "一投递就应答的消息，不会再投递给第二个消费者。"
    ),
    # S5
    "Alarm and event end with the process, both.": "告警与事件一起随进程消失。",
    "The commit stands, whoever knows of it, and the relay reads what stands.": (
        "提交已经生效，不管有没有人知道；中继读到的正是已经生效的内容。"
    ),
    "Both relays send, since the first cannot know. Only the second one's settlement counts.": (
        "两个中继都会发送，因为前一个无从得知；只有后一个的结算算数。"
    ),
}

_TIMELINES: Final = {
    "INSERT done, in an open transaction": "INSERT 已执行，事务尚未提交",
    "the broker has confirmed, the transaction is open": "代理已确认，事务尚未提交",
    "COMMIT has returned": "COMMIT 已返回",
    "COMMIT has returned, nothing is sent": "COMMIT 已返回，什么都还没发送",
    "the broker has confirmed": "代理已确认",
    "INSERT done and hook registered, in an open transaction": "INSERT 已执行，钩子已登记，事务尚未提交",
    "the hook after the commit begins, nothing is sent": "提交后的钩子开始执行，什么都还没发送",
    "sending has failed, the hook tries again": "发送失败，钩子再试一次",
    "INSERT done, sent within a Kafka transaction; both are open": (
        "INSERT 已执行，消息已在 Kafka 事务中发送；两个事务都未提交"
    ),
    "the database's COMMIT has returned, Kafka's is next": "数据库的 COMMIT 已返回，接下来轮到 Kafka",
    "Kafka's commit has returned, too": "Kafka 的提交也已返回",
    "alarm and event written, in an open transaction": "告警与事件都已写入，事务尚未提交",
    "COMMIT has returned: alarm and event stand": "COMMIT 已返回：告警与事件都已生效",
    "the broker's answer is there": "代理的答复到了",
    "the broker's answer to the commit is there": "代理对提交的答复到了",
    "the request ends with an error": "请求以错误告终",
    "the transaction with the event is about to commit": "带着事件的事务即将提交",
    "the transaction with the event has committed": "带着事件的事务已经提交",
    "the claim is committed, nothing is sent": "认领已提交，什么都还没发送",
    "the log has stored what was sent": "日志已存下所发送的消息",
    "the broker has answered, nothing is settled": "代理已答复，尚未结算",
    "settled and committed": "已结算并提交",
    "received": "收到",
    "the effect is committed, nothing is acknowledged": "效果已提交，尚未应答",
    "acknowledged": "已应答",
    "looked whether it was done before, and it was not": "查过是否处理过：还没有",
    "received and acknowledged at once, nothing is done": "一收到就应答，工作还没有做",
    "the effect is committed": "效果已提交",
    "mark and effect written, nothing is committed": "标记与效果已写入，尚未提交",
    "mark and effect are committed, nothing is acknowledged": "标记与效果已提交，尚未应答",
}

_STRUCK: Final = {
    "SIGKILL": "SIGKILL",
    "SIGCONT": "SIGCONT",
    "SIGSTOP": "SIGSTOP",
    "an exception is raised": "抛出异常",
    "the answer is thrown away": "答复被丢弃",
    "its connection is cut": "它的连接被切断",
    "another producer takes the transactional id": "另一个生产者夺走了事务编号",
}

SAID: Final[Mapping[str, str]] = MappingProxyType(_PLANS | _TIMELINES)
"""Sentences that are always the same."""

_ROLES: Final = {"application": "应用", "relay": "中继", "consumer": "消费者"}
_SERVERS: Final = {"database": "数据库", "broker": "消息代理"}
_OUTCOMES: Final = {
    "ghost": "幽灵消息",
    "loss": "丢失",
    "duplicate": "重复发送",
    "applied twice": "重复生效",
    "not applied": "漏处理",
}
_CLAUSES: Final = {
    "The database has the row": "数据库里有这一行",
    "The database has no row": "数据库里没有这一行",
    "the broker holds nothing": "代理里什么也没有",
    "nothing in the outbox will tell of it": "发件箱里没有什么会再去通知",
    "it waits in the outbox and is told as soon as a relay runs": "它在发件箱里等着，中继一运行就会发出",
    "the outbox has set it aside, where people see it and can replay it": "发件箱把它搁置在人看得见、可以重放的地方",
    "whether the outbox still holds it is not visible": "发件箱里是否还有它，不可见",
}

_Found = re.Match[str]
_PATTERNS: Final[tuple[tuple[str, Callable[[_Found], str | None]], ...]] = (
    (r"(.+) \((application|relay|consumer) (\d+)\)", lambda m: _about(m[1], f"（{_ROLES[m[2]]} {m[3]}）")),
    (r"(application|relay|consumer) (\d+) ends: (.+)", lambda m: f"{_ROLES[m[1]]} {m[2]} 结束：{m[3]}"),
    (r"SIGSTOP, for longer than its lease of ([\d.]+) s", lambda m: f"SIGSTOP，停得比它 {m[1]} 秒的租约更久"),
    (
        r"from here on the answers of the (database|broker) are lost",
        lambda m: f"从这里起，{_SERVERS[m[1]]}的答复都在途中丢失",
    ),
    (r"the link to the (database|broker) is cut", lambda m: f"通往{_SERVERS[m[1]]}的连接被切断"),
    (r"the link to the (database|broker) is whole again", lambda m: f"通往{_SERVERS[m[1]]}的连接恢复完好"),
    (r"(.+) \((\d+)\)", lambda m: _repeated(m[1], m[2])),
    (r"alarm row", lambda m: "告警行"),
    (r"outbox row", lambda m: "发件箱行"),
    (r"record (\S+)", lambda m: f"消息 {m[1]}"),
    (r"(\w+) of (\S+)", lambda m: f"{m[2]} 的 {m[1]}"),
)
_PARTS: Final[tuple[tuple[str, Callable[[_Found], str | None]], ...]] = (
    (r"the broker holds one record \((.+)\)", lambda m: f"代理里有一条消息（{m[1]}）"),
    (r"the broker holds (\d+) records \((.+)\)", lambda m: f"代理里有 {m[1]} 条消息（{m[2]}）"),
    (r"what the broker holds is not visible \((.+)\)", lambda m: f"代理里有什么，不可见（{m[1]}）"),
    (r"(\S+) has not applied it", lambda m: f"{m[1]} 没有执行过"),
    (r"(\S+) applied it once", lambda m: f"{m[1]} 执行了一次"),
    (r"(\S+) applied it (?:twice|(\d+) times)", lambda m: f"{m[1]} 执行了 {m[2] or '2'} 次"),
)


def said(english: str) -> str | None:
    """The Chinese for a sentence of the lab's, or None."""
    if english in SAID:
        return SAID[english]
    return _matched(_PATTERNS, english) or _verdict(english)


def _matched(patterns: tuple[tuple[str, Callable[[_Found], str | None]], ...], english: str) -> str | None:
    for pattern, chinese in patterns:
        if found := re.fullmatch(pattern, english):
            return chinese(found)
    return None


def _about(what: str, whom: str) -> str | None:
    known = _STRUCK.get(what) or _matched(_PATTERNS, what)
    return known and known + whom


def _repeated(what: str, times: str) -> str | None:
    known = SAID.get(what)
    return known and f"{known}（{times} 次）"


def _verdict(english: str) -> str | None:
    """A verdict's sentence: clauses, and perhaps what they amount to."""
    body, _, named = english.removesuffix(".").partition(": ")
    clauses = [_CLAUSES.get(one) or _matched(_PARTS, one) for one in body.split("; ")]
    outcomes = [_OUTCOMES.get(one) for one in named.split(", ")] if named else []
    if None in clauses or None in outcomes:
        return None
    tail = f"：{'、'.join(one for one in outcomes if one)}" if outcomes else ""
    return "；".join(one for one in clauses if one) + tail + "。"
