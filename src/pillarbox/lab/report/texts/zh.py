"""The report in Chinese (simplified)."""

# ruff: noqa: RUF001 - full-width punctuation is what Chinese is written with

from __future__ import annotations

from typing import Final

from ...model import Lane, Outcome
from . import Named, Texts
from .zh_said import said

_NAMES: Final = {
    Outcome.GHOST: "幽灵消息",
    Outcome.LOSS: "丢失",
    Outcome.DUPLICATE: "重复发送",
    Outcome.TWICE: "重复生效",
    Outcome.SKIPPED: "漏处理",
    Outcome.NOTHING: "没有留下任何问题",
}


def _counted(outcome: Outcome, number: int) -> str:
    name = _NAMES[outcome]
    return name if outcome is Outcome.NOTHING else f"{name} {number:,} 条"


def _seconds(value: float) -> str:
    if value < 1:
        return f"{value * 1000:.3g} 毫秒"
    return f"{value:.3g} 秒" if value < 100 else f"{int(value // 60)} 分 {int(value % 60)} 秒"


def _timeline_of(event_id: str, others: int) -> str:
    rest = f"，其余 {others:,} 个事件见 report.json" if others else ""
    return f"事件 {event_id}：结果最差的事件之一{rest}。"


TEXTS: Final = Texts(
    language="zh-Hans",
    other=("English", "report.html"),
    title="故障实验报告",
    kicker="Pillarbox 故障实验室",
    headline="数据库与消息代理，会在哪一步各执一词",
    lead=lambda cells, events, seed: (
        f"共运行 {cells:,} 组实验，每组 {events:,} 个事件，随机种子 {seed}。"
        "进程是真实的进程，故障准确落在某两步之间；一切平息之后，再去看服务器里究竟留下了什么。"
    ),
    started="开始时间",
    lasted="实验用时",
    seconds=_seconds,
    incomplete="本次运行被提前结束。已完成的实验全部保留在此，缺少的实验当时还没有轮到。",
    all_expected=lambda cells: f"已运行的 {cells:,} 组实验，结果全部与预期相符。",
    nothing_ran="没有运行任何实验。",
    surprised=lambda cells: f"有 {cells:,} 组实验的结果与预期不符",
    surprised_lead="以服务器里的数据为准：要么是预期错了，要么是有东西坏了。",
    seen_unexpected=lambda number, all_, what: f"预期之外却出现了：{what}（{all_} 个事件中有 {number} 个）",
    not_seen=lambda what: f"预期之内却没有出现：{what}",
    troubled=lambda cells: f"有 {cells:,} 组实验未能做完",
    troubled_lead="没有做完的实验不作判定，下面只说明原因。",
    sending="发送侧",
    sending_lead="每一行是一个故障落点，每一列是一种“把已提交的数据告诉消息代理”的写法。",
    consuming="消费侧",
    consuming_lead="换到另一端：每一列是一种识别“同一事件第二次到来”的写法。",
    window="故障窗口",
    not_part="不在本次运行之内",
    not_run="仅为预期，未运行",
    impossible="不存在此窗口",
    trouble="未做完",
    expected="预期",
    nothing_expected="没有留下任何问题",
    unexpected="与预期不符",
    of_events=lambda events: f"共 {events:,} 个事件",
    how_to_read="怎样读这份报告",
    how_paragraphs=(
        "“故障窗口”是本该一气呵成、实际却分成两步的那道缝隙：例如数据库提交与消息发送之间，又如代理确认与记录确认之间。"
        "每组实验里的每个事件都要穿过这道缝隙，而故障——杀死进程、切断连接、提交失败——恰好发生在其中。",
        "故障过后，进程会重新启动，把能补的补完。等一切静止，再按事件编号分别询问数据库和消息代理。"
        "表中的数字只来自这些行和这些消息，不采信被测程序自己的说法。",
        "服务器不肯透露的事实，一律写作“不可见”并附上原因，绝不猜测。没有运行的实验会明确标出，格子里写的只是预期。",
    ),
    outcomes=_NAMES,
    outcome_sentences={
        Outcome.GHOST: "消息讲述的那一行并不存在：事务回滚了，消息却收不回来。",
        Outcome.LOSS: "数据已经提交，但世上再没有任何东西会去发送它的消息。",
        Outcome.DUPLICATE: "一个事件，多条消息。只有能认出事件编号的消费者才不受其害。",
        Outcome.TWICE: "消费者为同一个事件做了不止一次工作。",
        Outcome.SKIPPED: "消息就在那里，而消费者永远不会再去处理它。",
        Outcome.NOTHING: "数据、消息与效果各恰好一份，或者一份都没有。",
    },
    counted=_counted,
    windows={
        "W1": Named("已确认，却回滚", "代理已确认收到消息，随后数据库事务失败。"),
        "W2": Named("已提交，却猝死", "数据库已提交，进程在发送之前死去。"),
        "W3": Named("已存下，却无人知晓", "代理已存下消息，答复却没有传回发送方。"),
        "W3r": Named("已确认，却没记下", "中继拿到了代理的确认，还没写入数据库就死去。"),
        "W4": Named("已生效，却未应答", "消费者已提交自己的工作，还没告诉代理就死去。"),
        "W4r": Named("两次投递撞在一起", "同一个事件在同一时刻由两个工作者处理。"),
        "B1": Named("已插入，却未提交", "INSERT 已返回，COMMIT 之前进程死去。"),
        "B2": Named("提交了，却没有回音", "COMMIT 已到达数据库，答复在返回途中丢失。"),
        "B3": Named("发送途中失去租约", "中继在发送时停住不动，另一个中继接手了它的工作。"),
        "B4": Named("第二个提交失败", "数据库已提交，代理自己的事务随后提交失败。"),
    },
    strategies={
        "S1": Named("在事务里发送", "先发送并等到确认，再提交数据库事务。"),
        "S2": Named("提交后发送", "先提交，再发送；出错只记一条日志。"),
        "S3": Named("提交后钩子，不断重试", "提交之后由钩子发送，只要进程还活着就一直重试。"),
        "S4": Named("数据库在先，Kafka 事务随后", "数据库提交之后，紧接着提交 Kafka 事务。"),
        "S5-row": Named("发件箱，按行租约", "事件与业务数据同在一个事务；中继逐行租用。"),
        "S5-partition": Named("发件箱，按分区租约", "事件与业务数据同在一个事务；中继按分区负责，并保持顺序。"),
        "S6": Named("发件箱，变更数据捕获", "事件与业务数据同在一个事务，由数据库日志读出。"),
        "C0": Named("不做幂等", "投递什么就执行什么。"),
        "C1": Named("先查再做", "先用 SELECT 看是否处理过，再执行，最后插入标记。"),
        "C2": Named("收件箱", "带唯一键的标记与业务写入同在一个事务。"),
        "CA": Named("先应答再做", "工作还没做就先告诉代理，自动提交正是如此。"),
    },
    said=said,
    cells="逐组查看",
    open_all="全部展开",
    close_all="全部收起",
    back="回到矩阵",
    why="原因",
    reason="未运行的原因",
    may_show="视时机也可能出现",
    outcome="结果",
    events="事件数",
    seen="实际",
    comes_out={"expected": "与预期相符", "possible": "可能出现", "unexpected": "预期之外", "missing": "预期有而未见"},
    both="两个问题，两个答案",
    both_caption="按数据库与消息代理各自留存的内容统计事件",
    database="数据库",
    broker="消息代理",
    has_row="有这一行",
    no_row="没有这一行",
    has_message="有消息",
    no_message="没有消息",
    not_visible="不可见",
    applied_caption="每个消费者对一个事件执行了几次",
    consumer="消费者",
    times=lambda number: "从未" if number == 0 else f"{number} 次",
    timeline="事情的经过",
    timeline_of=_timeline_of,
    no_timeline="没有记录到这个事件的任何时刻。",
    clocks="时间统一按实验室的时钟，从该事件的第一步起算。",
    clock_of=lambda server, offset: f"{server} 的时钟与之相差 {offset}，其时间戳已据此校正。",
    clock_unknown=lambda server, why: f"{server} 的时钟无法比对（{why}）。",
    sources={"lab": "实验室所见", "database": "数据库时间戳", "broker": "代理时间戳"},
    legend_fault="故障",
    legend_end="进程结束",
    legend_path="细线只表示先后，不表示因果",
    time="时间",
    lane="位置",
    lanes={
        Lane.APPLICATION: "应用",
        Lane.DATABASE: "数据库",
        Lane.RELAY: "中继",
        Lane.BROKER: "消息代理",
        Lane.CONSUMER: "消费者",
    },
    what="事情",
    source="来源",
    as_text="以表格查看",
    fault="故障",
    end="结束",
    left_out=lambda number: f"此处略去 {number:,} 条，完整内容见 report.json。",
    evidence="证据",
    settings="设置",
    setting="设置项",
    value="值",
    before_after="服务器前后状态",
    before="之前",
    after="之后",
    exits="进程如何结束",
    role="进程",
    ended="结束方式",
    rows="服务器里留下的内容",
    one_event=lambda event_id: f"事件 {event_id}",
    business_row="业务行",
    outbox_row="发件箱行",
    history="发送历史",
    records="代理中的消息",
    marks="收件箱标记",
    effects="执行效果",
    table="表",
    columns="列",
    server_time="服务器时间",
    place="位置",
    headers="消息头",
    none="无",
    verdicts="本组的全部事件",
    event="事件",
    again="重新运行这组实验",
    nothing_to_show="没有记录。",
    kafka="单看 Kafka",
    kafka_lead=(
        "它的幂等生产者能认出什么，节点停摆时各级确认又值多少。“重复”指一个事件有多条记录，“消失”指已确认却找不到记录。"
    ),
    kafka_surprised=lambda number: f"单看 Kafka，有 {number:,} 项实验与预期不符",
    experiment="实验",
    trial_counts=("发送", "已确认", "记录", "重复", "消失"),
    leader="首领",
    in_sync="同步副本",
    ran_on="运行环境",
    versions="版本",
    servers="服务器",
    command="命令",
    colophon="由 pillarbox lab 生成。同样的事实完整保存在 report.json 中，供程序读取。",
)
