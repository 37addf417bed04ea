"""Onsets, incidents and completeness: the plain Python that stands on counted rows."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark")

from aiocontroller.analytics.dataframes import DUCKDB, computing_by
from aiocontroller.analytics.gold.completeness import of_cluster as completeness_of
from aiocontroller.analytics.gold.incidents import _count_once
from aiocontroller.analytics.gold.incidents import of_cluster as incidents_of
from aiocontroller.analytics.gold.onsets import DEFAULT_SESSION_US, EXPIRY_US, NOTICED_WITHIN_US, Signs
from aiocontroller.analytics.small.session import SmallSession

S = 1_000_000
KILLED_US = 1000 * S
NOTICED_US = KILLED_US + 7 * S


def sign(kind: str, ts_us: int, **fields: Any) -> dict[str, Any]:
    names = ("node", "broker", "detail", "duration_us", "count", "event", "epoch", "brokers", "source", "process")
    return dict.fromkeys(names) | {
        "cluster": "c", "kind": kind, "ts_us": ts_us, "ts_error_us": 1000, "place": f"{kind}@{ts_us}", **fields,
    }  # fmt: skip


AGREED = sign("session", 10 * S, node=2, detail="ESTABLISHED", duration_us=6 * S)
LAST_LINE = sign("log_end", KILLED_US - S // 10, node=2, broker=2, detail="without a shutdown")
LOST = sign("peer_lost", KILLED_US + 30_000, node=1, broker=2, duration_us=6 * S)


def holds(onset: Any, true_us: int = KILLED_US) -> bool:
    return bool(abs(onset.us - true_us) <= onset.error_us)


def test_fetchers_tell_of_a_death_before_its_session_ends() -> None:
    idle = sign("peer_lost", KILLED_US - 300 * S, node=1, broker=2, duration_us=0)
    onset = Signs([AGREED, LAST_LINE, LOST, idle]).onset(2, NOTICED_US, 1000, 500 * S)
    assert (onset.us, onset.evidence, onset.how) == (LOST["ts_us"], "peers", "killed")
    assert holds(onset)
    assert onset.error_us == 130_000 + 2000
    assert onset.places == (LOST["place"], LAST_LINE["place"])
    # Without the log of the dead broker itself nothing tells how it ended.
    alone = Signs([AGREED, LOST]).onset(2, NOTICED_US, 1000, 500 * S)
    assert (alone.us, alone.how, alone.error_us) == (LOST["ts_us"], "unknown", NOTICED_WITHIN_US + 2000)


def test_evidence_of_an_earlier_life_does_not_count() -> None:
    before = sign("peer_lost", KILLED_US - 20 * S, node=1, broker=2, duration_us=6 * S)
    onset = Signs([AGREED, before, LAST_LINE, LOST]).onset(2, NOTICED_US, 1000, KILLED_US - 5 * S)
    assert onset.us == LOST["ts_us"]


def test_the_fetchers_of_a_broker_that_shuts_down_tell_of_no_other_brokers_death() -> None:
    """One broker after another is restarted: the first one's fetchers lose the second one, which goes on for 20 s."""
    own = sign("peer_lost", KILLED_US - 15 * S, node=3, broker=2, duration_us=0)
    left = sign("log_end", KILLED_US - 14 * S, node=3, broker=3, detail="shut down")
    onset = Signs([AGREED, own, left, LOST]).onset(2, NOTICED_US, 1000, 500 * S)
    assert (onset.us, onset.evidence) == (LOST["ts_us"], "peers")


def test_a_death_in_a_term_that_no_record_numbers_is_told_by_its_time() -> None:
    """A controller.log alone, which lost its election: it ended in a TypeError."""
    elected = sign("elected", KILLED_US - 100 * S, node=1, epoch=4, controller_epoch=4)
    (row,) = incidents_of("c", [turn(NOTICED_US, 2, "died", epoch=None)], [elected], [])
    assert (row["what"], row["broker"], row["controller_before"]) == ("broker", 2, 1)
    (row,) = incidents_of("c", [turn(NOTICED_US, 2, "died", epoch=None)], [], [])
    assert (row["broker"], row["controller_before"]) == (2, None)


def test_a_process_that_hung_says_so_when_it_goes_on() -> None:
    woke = sign("session", KILLED_US + 12 * S, node=2, detail="TIMED_OUT", duration_us=13 * S)
    onset = Signs([AGREED, woke]).onset(2, NOTICED_US, 1000, 500 * S)
    assert (onset.how, onset.evidence) == ("hung", "own session")
    assert holds(onset)
    assert onset.error_us < 3 * S


@pytest.mark.parametrize("agreed", [(), (AGREED,)])
def test_a_session_alone_bounds_the_onset(agreed: tuple[Any, ...]) -> None:
    onset = Signs([*agreed]).onset(2, NOTICED_US, 1000, 500 * S)
    session_us = 6 * S if agreed else DEFAULT_SESSION_US
    assert (onset.evidence, onset.how) == ("session", "unknown")
    assert holds(onset)
    assert onset.us - onset.error_us <= NOTICED_US - session_us - EXPIRY_US
    assert holds(onset, NOTICED_US)


def turn(ts_us: int, broker: int, event: str, **fields: Any) -> dict[str, Any]:
    return sign("turn", ts_us, broker=broker, event=event, node=1, **{"missed": False, "epoch": 1, **fields})


def cost(culprit: str | None, **fields: Any) -> dict[str, Any]:
    return {
        "cluster": "c", "culprit": culprit, "bucket": None, "broker": culprit and 2, "causes": ["broker_death"],
        "partitions": 3, "topics": 2, "under_replicated": 5, "start_us": NOTICED_US, "error_us": 0,
        "led_again_us": NOTICED_US + S, "in_sync_us": NOTICED_US + 60 * S, "still_open": 0, "open": 0,
        "unavailable_us": 3 * S, "longest_us": S, "evidence": ["a"], "last_evidence": ["b"], **fields,
    }  # fmt: skip


def test_two_deaths_that_one_record_tells_are_two_incidents_each_with_its_own_cost() -> None:
    both = [turn(NOTICED_US, broker, "died", place="deleted brokers: 2,3") for broker in (2, 3)]
    costs = [cost("deleted brokers: 2,3", broker=broker, partitions=broker * 10) for broker in (2, 3)]
    rows = incidents_of("c", both, [AGREED], costs)
    assert sorted((row["broker"], row["partitions"]) for row in rows) == [(2, 20), (3, 30)]


@pytest.mark.parametrize("missed", [True, False])
def test_the_controllers_own_death_is_one_incident_with_the_failover_in_it(missed: bool) -> None:
    """The next controller finds its registration gone, or still there: ZooKeeper removes one znode after the other."""
    terms = [
        sign("elected", 10 * S, node=2, epoch=1),
        sign("elected", NOTICED_US - S, node=3, epoch=2),
        sign("active", NOTICED_US, node=3, epoch=2),
    ]
    died = turn(NOTICED_US, 2, "died", missed=missed, epoch=2)
    (row,) = incidents_of("c", [died], [AGREED, LAST_LINE, LOST, *terms], [cost(died["place"])])
    assert (row["what"], row["broker"], row["how"], row["cause"]) == (
        "broker and controller", 2, "killed", "broker_death",
    )  # fmt: skip
    assert (row["controller_before"], row["controller_after"], row["controller_epoch"]) == (2, 3, 2)
    assert row["onset_us"] == LOST["ts_us"] < row["elected_us"] < row["noticed_us"]
    assert row["session_end_us"] == (row["elected_us"] if missed else row["noticed_us"])
    assert (row["partitions"], row["topics"], row["certainty"]) == (3, 2, "certain")
    assert row["evidence"] == [LOST["place"], LAST_LINE["place"], "elected@1006000000", died["place"], "b"]


def ours(node: int, epoch: int, at_us: int, kind: str = "elected") -> dict[str, Any]:
    return sign(kind, at_us, node=node, epoch=epoch, process=f"{node}-{epoch}", source="journal")


def record(node: int, epoch: int, last_us: int) -> dict[str, Any]:
    return {"cluster": "c", "process": f"{node}-{epoch}", "epoch": epoch, "last_us": last_us}


TERMS = [ours(1001, 1, 10 * S), ours(1002, 2, NOTICED_US)]


def test_a_controller_that_is_no_broker_dies_and_the_next_one_is_named() -> None:
    last = [record(1001, 1, KILLED_US - S), record(1002, 2, 2000 * S)]
    (row,) = incidents_of("c", [], [AGREED, *TERMS], [], last)
    assert (row["what"], row["how"], row["broker"], row["partitions"]) == ("controller", "killed", None, 0)
    assert (row["controller_before"], row["controller_after"], row["controller_epoch"]) == (1001, 1002, 2)
    assert row["elected_us"] == row["noticed_us"] == NOTICED_US
    assert abs(row["onset_us"] - KILLED_US) <= row["onset_error_us"] < 5 * S
    assert row["evidence"] == [TERMS[0]["place"], TERMS[1]["place"]]
    # Partitions whose leader died with it are listed at that broker, with the failover in it.
    died = turn(NOTICED_US, 2, "died", missed=True, epoch=2)
    both = incidents_of("c", [died], [AGREED, *TERMS], [cost(died["place"])], last)
    assert sorted(row["what"] for row in both) == ["broker", "controller"]
    broker = next(row for row in both if row["what"] == "broker")
    assert (broker["controller_before"], broker["controller_after"], broker["elected_us"]) == (1001, 1002, NOTICED_US)


@pytest.mark.parametrize("apart_us", [-S, S])
def test_a_controller_that_hands_over_is_no_incident(apart_us: int) -> None:
    """Also one that an operator makes to: the next one may be elected before it has said that it resigned."""
    resignation = ours(1001, 1, NOTICED_US + apart_us, "resigned")
    assert incidents_of("c", [], [*TERMS, resignation], [], [record(1001, 1, resignation["ts_us"])]) == []


def test_a_controller_that_resigns_long_after_the_next_election_had_lost_its_session() -> None:
    resignation = ours(1001, 1, NOTICED_US + 20 * S, "resigned")
    (row,) = incidents_of("c", [], [AGREED, *TERMS, resignation], [], [record(1001, 1, resignation["ts_us"])])
    assert (row["what"], row["how"]) == ("controller", "expired")
    assert row["onset_us"] - row["onset_error_us"] <= NOTICED_US - 9 * S
    assert row["evidence"][0] == resignation["place"]


def test_terms_without_a_journal_or_with_others_between_prove_no_controllers_death() -> None:
    assert incidents_of("c", [], TERMS, [], []) == []
    apart = [TERMS[0], ours(1002, 3, NOTICED_US)]
    assert incidents_of("c", [], apart, [], [record(1001, 1, KILLED_US)]) == []


SILENT_US = 1000 * S


def unheard(node: int, heard_us: int, **fields: Any) -> list[dict[str, Any]]:
    """What one broker says of a ZooKeeper that does not answer for ten seconds."""
    return [
        sign("session", 10 * S, node=node, detail="ESTABLISHED", duration_us=6 * S),
        sign("session", heard_us + 4 * S, node=node, detail="TIMED_OUT", duration_us=4 * S, place=f"t{node}", **fields),
        sign("session", SILENT_US + 10 * S, node=node, detail="ESTABLISHED", duration_us=6 * S),
    ]


def silent(*nodes: int) -> list[dict[str, Any]]:
    return [row for node in nodes for row in unheard(node, SILENT_US - node * S // 10)]


def test_a_zookeeper_that_several_brokers_do_not_hear_from_is_one_incident_with_all_that_it_cost() -> None:
    terms = [sign("elected", 20 * S, node=2, epoch=1), sign("elected", SILENT_US + 11 * S, node=3, epoch=2)]
    gone = [turn(SILENT_US + 11 * S, n, "died", missed=True, epoch=2, place=f"gone {n}") for n in (1, 2)]
    costs = [cost(f"gone {n}", broker=n, longest_us=n * S) for n in (1, 2)]
    (row,) = incidents_of("c", gone, [*silent(1, 2, 3), *terms], costs)
    assert (row["what"], row["how"], row["broker"], row["cause"]) == ("zookeeper", "no answer", None, "zookeeper")
    assert (row["partitions"], row["topics"], row["unavailable_us"], row["longest_us"]) == (6, 2, 6 * S, 2 * S)
    assert (row["controller_before"], row["controller_after"], row["controller_epoch"]) == (2, 3, 2)
    assert abs(row["onset_us"] - SILENT_US) <= row["onset_error_us"] < 3 * S
    assert row["session_end_us"] == row["elected_us"] == SILENT_US + 11 * S
    assert row["noticed_us"] == SILENT_US + 10 * S
    assert {"t1", "t2", "t3", "gone 1", "gone 2"} <= set(row["evidence"])
    assert row["culprit"] is None  # brokers served meanwhile: their windows begin when the controller moved them


UNKNOWN = {"unavailable_us": None, "longest_us": None}


def test_a_sum_with_an_unknown_time_is_unknown() -> None:
    """A window that lasted across an hour that the clocks may have skipped."""
    gone = [turn(SILENT_US + 11 * S, n, "died", missed=True, epoch=2, place=f"gone {n}") for n in (1, 2)]
    elected = sign("elected", SILENT_US + 11 * S, node=3, epoch=2)
    costs = [cost("gone 1", broker=1), cost("gone 2", broker=2, **UNKNOWN)]
    (stall,) = incidents_of("c", gone, [*silent(1, 2, 3), elected], costs)
    minutes = [cost(None, causes=["unknown"], bucket=n, start_us=n * 60 * S, led_again_us=n * 60 * S) for n in (1, 2)]
    (together,) = incidents_of("c", [], [], [minutes[0], {**minutes[1], **UNKNOWN}])
    for row in (stall, together):
        assert (row["unavailable_us"], row["longest_us"], row["partitions"]) == (None, None, 6)


def test_one_broker_that_does_not_hear_from_zookeeper_stood_still_itself() -> None:
    died = turn(SILENT_US + 7 * S, 2, "died")
    woke = sign("session", SILENT_US + 12 * S, node=2, detail="TIMED_OUT", duration_us=13 * S)
    (row,) = incidents_of("c", [died], [woke], [cost(died["place"])])
    assert (row["what"], row["broker"], row["how"]) == ("broker", 2, "hung")


def test_an_answer_that_a_busy_broker_reads_late_does_not_make_the_silence_begin_later() -> None:
    """Eleven milliseconds after ZooKeeper had stopped, on a machine with twenty processes for each processor."""
    elected = sign("elected", SILENT_US + 11 * S, node=3, epoch=2)
    late = [row for node in (1, 2) for row in unheard(node, SILENT_US + 11_000, ts_error_us=0)]
    died = turn(SILENT_US + 11 * S, 1, "died", missed=True, epoch=2, place="gone 1")
    (row,) = incidents_of("c", [died], [*late, elected], [])
    assert row["what"] == "zookeeper"
    assert abs(row["onset_us"] - SILENT_US) <= row["onset_error_us"] < 2 * S


def test_a_broker_that_was_killed_while_zookeeper_was_silent_is_reported_beside_it() -> None:
    end = sign("log_end", SILENT_US + 2 * S, node=3, broker=3, detail="without a shutdown")
    gone = [turn(SILENT_US + 11 * S, n, "died", missed=True, epoch=2, place=f"gone {n}") for n in (1, 3)]
    rows = incidents_of("c", gone, [*silent(1, 2), end], [])
    assert sorted((row["what"], row["broker"], row["how"]) for row in rows if row["broker"]) == [
        ("broker", 3, "killed")
    ]
    assert len(rows) == 2
    assert next(row for row in rows if row["what"] == "zookeeper")["evidence"] == ["t2", "t1", "gone 1"]


def test_a_zookeeper_that_was_silent_for_less_than_a_session_is_no_incident() -> None:
    assert incidents_of("c", [], [*silent(1, 2, 3), sign("elected", 20 * S, node=2, epoch=1)], []) == []


def test_brokers_that_did_not_hear_from_zookeeper_at_different_times_are_no_silence() -> None:
    died = [turn(SILENT_US + (7 + 600 * n) * S, n, "died", place=f"gone {n}") for n in (1, 2)]
    signs = [
        sign("session", SILENT_US + (12 + 600 * n) * S, node=n, detail="TIMED_OUT", duration_us=13 * S) for n in (1, 2)
    ]
    rows = incidents_of("c", died, signs, [])
    assert [(row["what"], row["how"]) for row in rows] == [("broker", "hung"), ("broker", "hung")]


def test_what_no_turn_explains_is_an_incident_of_unknown_cause() -> None:
    minutes = [
        cost(None, causes=["unknown"], bucket=n, start_us=n * 60 * S, led_again_us=n * 60 * S + S) for n in (1, 2)
    ]
    later = cost(None, causes=["unknown"], start_us=9000 * S, led_again_us=None, still_open=1, open=1)
    shutdown = turn(50 * S, 3, "shutdown")
    found = incidents_of("c", [shutdown], [], [*minutes, later])
    assert [(row["what"], row["certainty"], row["partitions"]) for row in found] == [("partitions", "unknown", 6), (
        "partitions", "unknown", 3)]  # fmt: skip
    assert (found[1]["led_again_us"], found[1]["still_open"]) == (None, 1)


def tally(source: str, node: int | None, epoch: int | None, kind: str, first_us: int = S, last_us: int = 2 * S) -> Any:
    return {
        "cluster": "c", "source": source, "node": node, "epoch": epoch, "kind": kind, "n": 1, "first_us": first_us,
        "last_us": last_us,
    }  # fmt: skip


def availability(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return next(row for row in rows if row["what"] == "availability")


def test_only_server_logs_leave_availability_unknown() -> None:
    """Finding 4: it was 1.0, without a window, against 59 outages."""
    records = [tally("server.log", node, None, kind) for node in (1, 2) for kind in ("isr", "other")]
    found = completeness_of(records, [], [{"cluster": "c", "broker": n} for n in (1, 2, 3)])
    assert not availability(found)["known"]
    assert "no record of any controller" in availability(found)["words"]
    missing = {row["name"] for row in found if not row["known"]}
    assert {"3", "controller.log of broker 1", "state-change.log of broker 2"} <= missing


@pytest.mark.parametrize("named", [True, False])
def test_a_term_without_logs_is_named(named: bool) -> None:
    """Finding 4: 33 windows vanished without a remark, although epochs 1 and 3 were there."""
    kinds = ("elected", "partition", "loaded")
    records = [tally("controller.log", epoch, epoch, kind) for epoch in (1, 3) for kind in kinds]
    records += [tally("state-change.log", node, 1, "received") for node in (1, 3)]
    signs = []
    if named:
        records.append(tally("state-change.log", 1, 2, "received", 5 * S, 9 * S))
        signs.append(sign("term", 5 * S, node=1, broker=2, epoch=2, duration_us=4 * S))
    found = completeness_of(records, signs, [])
    terms = [row for row in found if row["what"] == "term"]
    assert [(row["name"], row["known"]) for row in terms] == [("1", True), ("2", False), ("3", True)]
    assert not availability(found)["known"]
    assert ("no record of controller 2 in epoch 2" if named else "the controller of epoch 2") in terms[1]["words"]
    assert terms[1]["words"] in availability(found)["words"]


def test_epochs_far_apart_are_one_row_of_missing_terms() -> None:
    records = [tally("journal", 1, epoch, "elected") for epoch in (1, 3, 2**31 - 1)]
    terms = [row for row in completeness_of(records, [], []) if row["what"] == "term"]
    assert [row["name"] for row in terms] == ["1", "2", "3", "4 to 2147483646", "2147483647"]
    assert [row["known"] for row in terms] == [True, False, True, False, True]
    assert "the controllers of epochs 4 to 2147483646" in terms[3]["words"]


def test_all_logs_of_all_terms_are_complete() -> None:
    records = [tally("controller.log", 1, 1, kind) for kind in ("elected", "loaded")]
    records += [tally("state-change.log", 1, 1, "partition"), tally("server.log", 1, 1, "isr")]
    found = completeness_of(records, [sign("cluster_id", S, node=1, detail="abc")], [])
    assert [row for row in found if not row["known"]] == []
    assert {"cluster id", "broker", "term", "log", "availability"} == {row["what"] for row in found}
    journal = [tally("journal", 7, 1, "partition"), tally("journal", 8, 2, "elected")]
    assert all(row["known"] for row in completeness_of(journal, [], [{"cluster": "c", "broker": 1}]))


END_US = 5000 * S


def ended(*more: dict[str, Any], on_us: int, pause_us: int = 60 * S, **fields: Any) -> dict[str, Any]:
    """The row of broker 2, whose logs end, while those of broker 1, the controller, go on."""
    end = sign("log_end", END_US, **{"node": 2, "broker": 2, "detail": "without a shutdown", "count": 500, **fields})
    other = sign("log_end", on_us, node=1, broker=1, detail="without a shutdown", count=500)
    records = [tally("controller.log", 1, 1, kind, S, on_us) for kind in ("elected", "loaded", "partition")]
    records += [tally("server.log", 2, None, "other", S, END_US)]
    signs = [end | {"duration_us": 10 * S}, other | {"duration_us": pause_us}, *more]
    found = completeness_of(records, signs, [])
    return next(row for row in found if row["what"] == "broker" and row["name"] == "2")


def of_2(detail: str, ts_us: int) -> dict[str, Any]:
    return sign("broker", ts_us, node=1, broker=2, detail=detail)


LONG_US = END_US + 700 * S


def test_logs_that_end_while_others_go_on_are_named() -> None:
    """A file that was cut exactly at the end of a line looks whole."""
    row = ended(on_us=LONG_US)
    assert not row["known"]
    assert (
        "logs of broker 2 end at 1970-01-01 01:23:20; other brokers' logs go on until 1970-01-01 01:35:00"
        in row["words"]
    )
    returned = ended(of_2("dead", END_US + 7 * S), of_2("added", END_US + 90 * S), on_us=END_US + 100 * S)
    assert not returned["known"]
    assert "come back at 1970-01-01 01:24:50" in returned["words"]


@pytest.mark.parametrize(
    "row",
    [
        {"on_us": END_US + 500 * S},  # a shorter silence
        {"on_us": LONG_US, "pause_us": 300 * S},  # others are silent for long, too
        {"on_us": LONG_US, "count": 5},  # how often it writes is unknown
        {"on_us": LONG_US, "detail": "shut down"},
        {"on_us": LONG_US, "more": of_2("dead", END_US + 7 * S)},
        {"on_us": LONG_US, "more": of_2("controlled shutdown", END_US - 2 * S)},
        {"on_us": LONG_US, "more": sign("active", END_US + 50 * S, node=1, brokers=[1])},
    ],
)
def test_a_silence_that_has_a_reason_is_no_lack(row: dict[str, Any]) -> None:
    more = [row.pop("more")] if "more" in row else []
    assert ended(*more, **row)["known"]


def test_the_end_of_the_last_controllers_logs_makes_availability_unknown() -> None:
    records = [tally("controller.log", 2, 1, kind, S, END_US) for kind in ("elected", "loaded")]
    records += [
        tally("state-change.log", 2, 1, "partition", S, END_US),
        tally("server.log", 1, None, "isr", S, LONG_US),
    ]
    ends = [sign("log_end", us, node=n, detail="without a shutdown", count=99, duration_us=S) for n, us in (
        (1, LONG_US), (2, END_US))]  # fmt: skip
    assert "the logs of broker 2 end at" in availability(completeness_of(records, ends, []))["words"]
    # Another one was elected after it.
    later = [tally("controller.log", 1, 2, kind, LONG_US, LONG_US) for kind in ("elected", "loaded")]
    later += [tally("state-change.log", 1, 2, "partition", S, LONG_US)]
    assert availability(completeness_of([*records, *later], ends, []))["known"]


def went_on_alone(silent_us: int, others_silent_us: int = 30 * S, on_us: int = END_US + 3600 * S) -> list[str]:
    """What is said of the server.log of broker 1, which ends at ``on_us``, an hour after all other logs."""
    records = [tally("controller.log", 2, 1, kind, S, END_US) for kind in ("elected", "loaded")]
    records += [tally("state-change.log", 2, 1, "partition", S, END_US), tally("server.log", 2, None, "isr", S, END_US)]
    records += [
        tally("state-change.log", 1, None, "received", S, END_US),
        tally("server.log", 1, None, "isr", S, on_us),
    ]
    ends = [
        sign("log_end", us, node=n, detail="shut down", count=99, duration_us=longest)
        for n, us, longest in ((1, on_us, silent_us), (2, END_US, others_silent_us))
    ]
    return [row["words"] for row in completeness_of(records, ends, []) if row["what"] == "clock"]


def test_a_log_that_goes_on_alone_beyond_a_long_silence_is_named() -> None:
    """Its last lines were an hour late, and the hour counted as time in which all partitions had leaders."""
    (words,) = went_on_alone(3590 * S)
    assert words.startswith("server.log of broker 1 goes on until 1970-01-01 02:23:20, 1:00:00 after all other logs")


@pytest.mark.parametrize(
    "how",
    [
        {"silent_us": 60 * S},  # it was copied later, and had much to say
        {"silent_us": 3590 * S, "others_silent_us": 1500 * S},  # a quiet cluster
        {"silent_us": 290 * S, "on_us": END_US + 300 * S},
    ],
)
def test_a_log_that_goes_on_alone_for_a_reason_is_not_named(how: dict[str, int]) -> None:
    assert went_on_alone(**how) == []


class Counted(dict[str, Any]):
    """A row that counts how often it is asked."""

    asked = 0

    def __getitem__(self, name: str) -> Any:
        Counted.asked += 1
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        Counted.asked += 1
        return super().get(name, default)


def asked_of(brokers: int) -> tuple[int, int]:
    """How often incidents and completeness ask the rows of so many brokers that died and came back."""
    turns, signs, records = [], [], []
    for n in range(brokers):
        died_us, back_us = (5000 + n) * S, (9000 + n) * S
        for event, ts_us in (("died", died_us), ("came_back", back_us)):
            turns.append(Counted(sign("broker", ts_us, broker=n, event=event, epoch=1), missed=False))
        signs += [
            Counted(sign("broker", died_us, broker=n, detail="dead", node=1)),
            Counted(sign("broker", back_us, broker=n, detail="added", node=1)),
            Counted(sign("log_end", died_us - S, broker=n, node=n, detail="without a shutdown")),
        ]
        records += [
            Counted(source="server.log", node=n, epoch=1, kind=kind, n=1, first_us=died_us, last_us=back_us)
            for kind in ("isr", "other", "broker")
        ]
    Counted.asked = 0
    assert len(incidents_of("c", turns, signs, [])) == brokers
    incidents, Counted.asked = Counted.asked, 0
    completeness_of(records, signs, [])
    return incidents, Counted.asked


def test_twice_as_many_dead_brokers_take_no_more_than_twice_as_long() -> None:
    """3,000 took a minute: each one's rows were looked for among those of all."""
    for once, twice in zip(asked_of(100), asked_of(200), strict=True):
        assert 0 < twice < 2.5 * once


def windows_of(*rows: tuple[Any, ...], start_us: int = 0) -> Any:
    columns = (
        "cluster string, culprit string, broker int, topic string, partition int, cause string, unavailable boolean, "
        "start_us long"
    )
    return SmallSession().createDataFrame([(*row, start_us) if len(row) == 7 else row for row in rows], columns)


def test_a_partition_that_lost_two_leaders_in_one_silence_counts_once() -> None:
    lost = [("a", "p1", 1, "t", 0), ("a", "p1", 1, "t", 1), ("a", "p2", 2, "t", 0), ("a", "p2", 2, "u", 0)]
    with computing_by(DUCKDB):
        windows = windows_of(
            *((*row, "broker_death", True) for row in lost),
            ("a", "p2", 2, "t", 1, "broker_death", False),
            ("a", "p2", 2, "t", 7, "reassignment", False),
            ("a", "p3", 1, "v", 0, "broker_death", True),
        )
        silence = {"partitions": 4, "topics": 2, "under_replicated": 1, "number": 3}
        found = [
            {"cluster": "a", "served": [("p1", 1), ("p2", 2)], **silence},
            {"cluster": "a", **silence, "number": 4},
            {"cluster": "b", "served": [("p1", 1)], **silence},
        ]
        _count_once(windows, found)
    counts = [(row["partitions"], row["topics"], row["under_replicated"]) for row in found]
    assert counts == [(3, 2, 1), (4, 2, 1), (4, 2, 1)]


def test_a_partition_that_was_down_in_two_minutes_of_one_incident_counts_once() -> None:
    """Windows that no event explains are counted by minute and broker, and adjacent minutes are one incident."""
    causes = {"causes": ["unknown"], "partitions": 2, "topics": 1, "under_replicated": 0}
    minutes = [
        cost(None, **causes, bucket=n, start_us=n * 60 * S, led_again_us=n * 60 * S + S, broker=None) for n in (1, 2)
    ]
    (row,) = incidents_of("c", [], [], minutes)
    assert (row["partitions"], row["topics"]) == (4, 2)  # an upper bound
    with computing_by(DUCKDB):
        windows = windows_of(
            *(("c", None, None, "t", n, "unknown", True, minute * 60 * S) for minute, n in ((1, 0), (1, 1), (2, 1))),
            ("c", None, None, "t", 2, "unknown", True, 180 * S),
            ("c", None, 7, "t", 3, "unknown", True, 60 * S),
            ("d", None, None, "t", 4, "unknown", True, 60 * S),
        )
        _count_once(windows, [row])
    assert (row["partitions"], row["topics"], row["under_replicated"]) == (2, 1, 0)


def minutes_of(*of: tuple[int, int | None]) -> list[tuple[int | None, int]]:
    """The incidents (broker, partitions) of windows that no event explains: one in each (minute, broker), 1 s long."""
    causes = {"causes": ["unknown"], "partitions": 1, "topics": 1, "under_replicated": 0}
    rows = [
        cost(None, **causes, bucket=n, start_us=n * 60 * S, led_again_us=n * 60 * S + S, broker=broker)
        for n, broker in of
    ]
    return [(row["broker"], row["partitions"]) for row in incidents_of("c", [], [], rows)]


def test_windows_of_no_broker_and_of_broker_0_are_told_apart() -> None:
    """They were sorted as one broker's, so that each minute of either ended the other's incident, and a partition that
    was down in two minutes counted in two incidents."""
    assert minutes_of((1, None), (2, 0), (2, None), (3, 0)) == [(None, 2), (0, 2)]


def test_windows_that_stay_open_belong_together_minute_by_minute() -> None:
    causes = {"causes": ["unknown"], "partitions": 1, "topics": 1, "under_replicated": 0, "still_open": 1}
    rows = [cost(None, **causes, bucket=n, start_us=n * 60 * S, led_again_us=None, broker=1) for n in (1, 2, 3, 5)]
    assert [row["partitions"] for row in incidents_of("c", [], [], rows)] == [3, 1]
