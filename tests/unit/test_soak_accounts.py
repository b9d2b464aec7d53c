"""The soak's accounting finds every broken promise, and nothing where all were kept."""

from dataclasses import replace

import pytest

from pillarbox.lab.soak.accounts import Books, Finding, Told, balance

GOOD = Books(
    business={"a": "k", "b": "k", "c": "l"},
    outbox={"a": 1, "b": 2, "c": 3},
    waiting={},
    sent=["a", "b", "c"],
    told=[Told("a", "k", 1, "t[0]@0"), Told("b", "k", 2, "t[0]@1"), Told("c", "l", 1, "t[1]@0")],
    marks=["a", "b", "c"],
    applied=["a", "b", "c"],
)


def findings(books: Books, *, ordered: bool = True) -> list[tuple[str, str]]:
    return [(one.kind, one.event_id) for one in balance(books, ordered=ordered).findings]


def test_nothing_is_wrong_when_each_event_was_told_and_applied_once() -> None:
    accounts = balance(GOOD)
    assert accounts.balanced
    assert (accounts.business, accounts.records, accounts.duplicates, accounts.applied, accounts.keys) == (
        3,
        3,
        0,
        3,
        2,
    )


def test_a_second_copy_on_the_wire_is_counted_and_breaks_no_promise() -> None:
    accounts = balance(replace(GOOD, told=[*GOOD.told, GOOD.told[0], GOOD.told[0]]))
    assert accounts.balanced
    assert (accounts.duplicates, accounts.repeated, accounts.most) == (2, 1, 3)


def test_a_copy_that_comes_late_is_no_break_of_order() -> None:
    a, b, c = GOOD.told
    assert balance(replace(GOOD, told=[a, b, a, c])).out_of_order == 0


def test_a_record_without_a_business_row_is_a_ghost() -> None:
    told = [*GOOD.told, Told("x", "k", 3, "t[0]@2")]
    assert findings(replace(GOOD, told=told)) == [("ghost", "x")]


def test_an_effect_without_a_business_row_is_a_ghost() -> None:
    assert findings(replace(GOOD, applied=[*GOOD.applied, "x"], marks=[*GOOD.marks, "x"])) == [("ghost", "x")]


def test_a_business_row_that_was_never_told_is_a_loss() -> None:
    books = replace(GOOD, told=list(GOOD.told[:2]), applied=["a", "b"], marks=["a", "b"])
    assert findings(books) == [("loss", "c")]


def test_what_was_set_aside_in_the_outbox_is_not_lost_and_not_finished_either() -> None:
    books = replace(
        GOOD, told=list(GOOD.told[:2]), waiting={"c": "DEAD"}, sent=["a", "b"], applied=["a", "b"], marks=["a", "b"]
    )
    (only,) = balance(books).findings
    assert (only.kind, only.event_id) == ("unfinished", "c")
    assert "DEAD" in only.sentence


def test_an_event_that_was_told_and_not_applied_is_found() -> None:
    assert findings(replace(GOOD, applied=["a", "b"], marks=["a", "b"])) == [("not applied", "c")]


def test_an_effect_that_was_done_twice_is_found() -> None:
    books = replace(GOOD, applied=["a", "b", "c", "b"])
    assert balance(books).findings == (Finding("applied twice", "b", "The consumer applied it 2 times."),)


def test_first_occurrences_out_of_order_are_found() -> None:
    a, b, c = GOOD.told
    accounts = balance(replace(GOOD, told=[b, a, c]))
    assert [(one.kind, one.event_id) for one in accounts.findings] == [("order", "a")]
    assert "t[0]@0" in accounts.findings[0].sentence


def test_order_is_counted_and_not_judged_where_it_is_not_promised() -> None:
    a, b, c = GOOD.told
    accounts = balance(replace(GOOD, told=[b, a, c]), ordered=False)
    assert accounts.balanced
    assert accounts.out_of_order == 1


def test_a_missing_event_is_a_loss_and_not_a_break_of_order_besides() -> None:
    a, b, c = GOOD.told
    assert [kind for kind, _ in findings(replace(GOOD, told=[b, c]))] == ["loss"]
    assert a.number == 1


@pytest.mark.parametrize(
    "books",
    [
        replace(GOOD, outbox={"a": 1, "b": 2}),
        replace(GOOD, outbox=GOOD.outbox | {"x": 4}, sent=[*GOOD.sent, "x"]),
        replace(GOOD, marks=["a", "b"]),
        replace(GOOD, marks=[*GOOD.marks, "x"]),
        replace(GOOD, sent=["a", "b"]),
        replace(GOOD, sent=[*GOOD.sent, "a"]),
    ],
    ids=["no outbox row", "no business row", "no mark", "no effect", "no receipt", "two receipts"],
)
def test_rows_that_have_to_come_in_pairs_and_do_not_are_found(books: Books) -> None:
    assert [kind for kind, _ in findings(books)] == ["tables"]
