"""Finds what the tables are based on, and what is missing: brokers, controllers' terms, logs, files and lines.

The leaderships of a term are known if all records of its controller exist, from the first to the last.  If records of a
term are missing, or if there is no record of any controller, the cluster's availability is *unknown*: null, never 1.0.

There is about one row for each broker, term and file, however large the inputs, so plain Python over counted rows is
enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from aiocontroller.analytics import schema
from aiocontroller.analytics.dataframes import DataFrame, F
from aiocontroller.analytics.gold.rows import Row, collected
from aiocontroller.analytics.log_evidence import SHUT_DOWN
from aiocontroller.analytics.log_gaps import UNHEARD
from aiocontroller.analytics.schema import CONTROLLER_LOG, JOURNAL_SOURCE, SERVER_LOG, STATE_CHANGE_LOG
from aiocontroller.analytics.times import time_of

IN_CONTROLLER_LOG: Final = ("elected", "failover", "loaded", "active", "resigned", "topic_deleted")
IN_STATE_CHANGE_LOG: Final = ("partition", "replica", "told", "request", "response", "received")
IN_SERVER_LOG: Final = ("isr", "cluster_id", "session", "peer_lost")
WHILE_ACTIVE: Final = (*IN_CONTROLLER_LOG, "partition", "isr", "replica", "told", "request", "write", "reassigned")
"""Kinds of records that only a controller writes about its own actions."""
OF_A_TRACE: Final = ("\t", " ", "java.", "org.apache.", "kafka.", "Caused by")
"""How the rest of a stack trace begins that log rotation has cut."""
_BY_CONTROLLERS: Final = ("elected", "loaded", "request", "told", "replica")
_BROKER_CAME: Final = ("added", "bounced")
_BROKER_WENT: Final = ("dead", "controlled shutdown")
"""What a controller logs when a broker comes or goes."""
LATE_US: Final = 60_000_000
"""A broker may handle a request this long after a controller's last record, and clocks may differ."""
SILENT_US: Final = 600_000_000
SILENT_TIMES: Final = 3
SINGLE_SILENCE: Final = 0.5
"""The least share of the time that only one log covers that must be a single silence."""
FEWEST_LINES: Final = 20
"""A broker's silence means nothing if it has logged fewer lines than this."""


def completeness(
    milestones: DataFrame,
    tallies: DataFrame,
    balance: DataFrame,
    quality: DataFrame,
    quarantine: DataFrame,
    lacks: Sequence[Mapping[str, Any]] = (),
) -> tuple[DataFrame, list[str]]:
    """Return the table ``completeness``, and the clusters whose availability is unknown.

    ``what`` is ``cluster id``, ``broker``, ``term``, ``log``, ``file``, ``lines``, ``gap``, ``clock`` or
    ``availability``.  ``known`` states whether the records exist, ``words`` explains it, and ``from_us`` and
    ``to_us`` are the time concerned.  ``quality`` is the table ``data_quality``; ``lacks`` are what the files lack
    (``lacks``).
    """
    files_with_gaps = {row["file"]: row for row in collected(quality.where("gaps > 0").select("file", "gaps"))}
    rejected = collected(quarantine.groupBy("cluster", "file", "source", "reason").agg(
        F.sum("count").alias("count"), F.min("line").alias("line")))  # fmt: skip
    counted = (
        tallies.where("kind <> 'gap'")
        .groupBy("cluster", "source", "node", "process", "epoch", "kind")
        .agg(F.sum("n").alias("n"), F.min("first_us").alias("first_us"), F.max("last_us").alias("last_us"))
    )
    records = collected(counted)
    by_file = tallies.groupBy("cluster", "file", "source", "node", "process")
    in_files = collected(by_file.agg(F.sum("n").alias("n"), F.max("last_us").alias("last_us")))
    wanted = milestones.where("kind IN ('term', 'cluster_id', 'log_end', 'broker', 'active', 'loaded', 'gap')").select(
        "cluster", "kind", "event", "node", "epoch", "broker", "brokers", "ts_us", "duration_us", "count", "detail",
        "source", "place",
    )  # fmt: skip
    signs = collected(wanted)
    holders = collected(balance.select("cluster", "broker").distinct())
    found: list[Row] = []
    unknown = []
    for cluster in sorted({row["cluster"] for row in records}):

        def of(table: Sequence[Row], name: str = cluster) -> list[Row]:
            return [row for row in table if row["cluster"] == name]

        lacking = [lack for lack in lacks if lack["cluster"] in (None, cluster)]
        rows = of_cluster(of(records), of(signs), of(holders), of(rejected), of(in_files), files_with_gaps, lacking)
        found += [{"cluster": cluster, **row} for row in rows]
        if not next(row["known"] for row in rows if row["what"] == "availability"):
            unknown.append(cluster)
    columns = schema.GOLD["completeness"]
    spark = tallies.sparkSession
    return spark.createDataFrame([tuple(row[name] for name in columns.names) for row in found], columns.ddl), unknown


def of_cluster(
    records: Sequence[Row],
    signs: Sequence[Row],
    holders: Sequence[Row],
    rejected: Sequence[Row] = (),
    in_files: Sequence[Row] = (),
    files_with_gaps: Mapping[str, Row] | None = None,
    lacks: Sequence[Mapping[str, Any]] = (),
) -> list[Row]:
    """Return the rows of one cluster.  ``records``: tallies by source, node, process, epoch and kind; ``signs``:
    milestones; ``holders``: brokers that hold replicas; ``rejected``: lines in quarantine; ``in_files``: the writers of
    each file; ``files_with_gaps``: files by name whose process lacks records."""
    terms = _terms(records, signs)
    needs = Needs(records, signs)
    found = [
        *_ids(signs),
        *_brokers(records, signs, holders),
        *(_logs(records) if any(row["source"] != JOURNAL_SOURCE for row in records) else ()),
        *_gaps(signs),
        *_outlasting_logs(records, signs),
        *_journals_with_gaps(in_files, files_with_gaps or {}),
        *_lines(rejected, in_files, needs),
        *_files(lacks, in_files, needs),
        *terms,
    ]
    lacking = [row["words"] for row in terms if not row["known"]]
    lacking += [row["words"] for row in found if not row["known"] and row.get("needed")]
    for row in found:
        row.pop("needed", None)
    if not any(row["known"] for row in terms):
        none_at_all = "there is no record of any controller: no controller.log, state-change.log or journal"
        lacking = [none_at_all, *lacking]
    words = "; ".join(lacking) if lacking else "every controller term that a record names is recorded by its controller"
    return [*found, _row("availability", "cluster", not lacking, words, *_span(records))]


def _row(what: str, name: str, known: bool, words: str, from_us: int | None = None, to_us: int | None = None) -> Row:
    return {"what": what, "name": name, "known": known, "words": words, "from_us": from_us, "to_us": to_us}


def _span(rows: Iterable[Row]) -> tuple[int | None, int | None]:
    every = list(rows)
    return (
        min((row["first_us"] for row in every if row["first_us"] is not None), default=None),
        max((row["last_us"] for row in every if row["last_us"] is not None), default=None),
    )


def _by_node(rows: Iterable[Row]) -> dict[int, list[Row]]:
    """Group rows by node: with thousands of brokers, a search through all rows for each would take minutes."""
    found: dict[int, list[Row]] = {}
    for row in rows:
        if row["node"] is not None:
            found.setdefault(row["node"], []).append(row)
    return found


def _ids(signs: Iterable[Row]) -> list[Row]:
    ids = sorted({row["detail"] for row in signs if row["kind"] == "cluster_id" and row["detail"]})
    return [_row("cluster id", each, len(ids) == 1, "as brokers log at startup") for each in ids]


def _brokers(records: Sequence[Row], signs: Sequence[Row], holders: Iterable[Row]) -> list[Row]:
    """Return a row for each broker that a record names."""
    logged = {row["node"] for row in records if row["source"] != JOURNAL_SOURCE and row["node"] is not None}
    named = {row["broker"] for row in holders} | logged
    for row in signs:
        named |= {row["broker"], *(row["brokers"] or ())} if row["kind"] != "term" else set()
    if not logged:  # a journal covers all brokers
        return []
    every = sorted(each for each in named if each is not None and each >= 0)
    of_node = _by_node(records)
    early = _ends_early(records, signs)
    found = []
    for each in every:
        if each in logged:
            words, needed = early.get(each, ("its logs are there", False))
            row = _row("broker", str(each), each not in early, words, *_span(of_node[each]))
            found.append({**row, "needed": needed})
        else:
            found.append(_row("broker", str(each), False, f"no log of broker {each}, which other records name"))
    return found


def _ends_early(records: Sequence[Row], signs: Sequence[Row]) -> dict[int, tuple[str, bool]]:
    """Return (reason, whether a controller's records are missing) of the brokers whose logs end while others go on,
    although no record shows that they stopped.

    Logs may be silent.  What counts is a silence several times as long as any earlier one of any broker, or that a
    controller saw the broker come back.
    """
    in_time = sorted(signs, key=lambda row: row["ts_us"])
    ends = {row["node"]: row for row in in_time if row["kind"] == "log_end"}
    changes = {row["broker"]: row for row in in_time if row["kind"] == "broker" and row["broker"] != row["node"]}
    lists = [row for row in in_time if row["kind"] in ("active", "loaded") and row["brokers"] is not None]
    timed = [row for row in records if row["last_us"] is not None]
    last_us = {node: max(row["last_us"] for row in rows) for node, rows in _by_node(timed).items()}
    latest = sorted(last_us, key=lambda node: last_us[node])[-2:]
    usual_us = max((row["duration_us"] or 0 for row in ends.values()), default=0)
    last_controller = _last_controller(records, signs)
    found: dict[int, tuple[str, bool]] = {}
    for node, end in ends.items():
        others_us = max((last_us[other] for other in latest if other != node), default=0)
        change = changes.get(node)
        since_us = change["ts_us"] - end["ts_us"] if change is not None else 0
        if change is not None and change["detail"] in _BROKER_CAME and since_us > LATE_US:
            why = f"a controller saw it come back at {_moment(change['ts_us'])}"
        else:
            went = end["detail"] == SHUT_DOWN or (
                change is not None and change["detail"] in _BROKER_WENT and since_us > -LATE_US
            )
            away = lists and lists[-1]["ts_us"] > end["ts_us"] and node not in lists[-1]["brokers"]
            silent = others_us - end["ts_us"] > max(SILENT_US, SILENT_TIMES * usual_us)
            if went or away or not silent or (end["count"] or 0) < FEWEST_LINES:
                continue
            why = f"other brokers' logs go on until {_moment(others_us)}, and no record shows that it stopped"
        found[node] = f"the logs of broker {node} end at {_moment(end['ts_us'])}; {why}", node == last_controller
    return found


def _outlasting_logs(records: Iterable[Row], signs: Iterable[Row]) -> list[Row]:
    """Return a row for a log that alone goes on after, or begins before, a silence longer than any of other brokers:
    its clock was set then, or its appender changed its time zone.

    In a quiet cluster, other logs are silent as long; a log that was copied later than others goes on without such a
    silence.
    """
    of_log: dict[tuple[str, int], list[Row]] = {}
    for row in records:
        if row["node"] is not None and row["first_us"] is not None and row["last_us"] is not None:
            of_log.setdefault((row["source"], row["node"]), []).append(row)
    spans = {log: _span(rows) for log, rows in of_log.items()}
    silent_us: dict[int, int] = {}
    for row in signs:
        if row["kind"] == "log_end":
            silent_us[row["node"]] = max(silent_us.get(row["node"], 0), row["duration_us"] or 0)
    found = []
    for at, sign, words in ((1, 1, "goes on until {0}, {1} after"), (0, -1, "begins at {0}, {1} before")):
        *others, alone = sorted(spans, key=lambda log: sign * (spans[log][at] or 0)) or [("", -1)]
        if not others or alone[0] == JOURNAL_SOURCE:
            continue
        from_us, to_us = spans[others[-1]][at] or 0, spans[alone][at] or 0
        usual_us = max((us for node, us in silent_us.items() if node != alone[1]), default=None)
        apart_us = abs(to_us - from_us)
        if usual_us is None or apart_us <= max(SILENT_US, SILENT_TIMES * usual_us):
            continue
        if silent_us.get(alone[1], 0) >= SINGLE_SILENCE * apart_us:
            name = f"{alone[0]} of broker {alone[1]}"
            text = words.format(_moment(to_us), timedelta(seconds=apart_us // 1_000_000))
            row = _row("clock", f"clock of {name}", False, f"{name} {text} all other logs, beyond a long silence: its "
                       "clock was set, or the others are incomplete", *sorted((from_us, to_us)))  # fmt: skip
            found.append({**row, "needed": True})
    return found


def _last_controller(records: Iterable[Row], signs: Iterable[Row]) -> int | None:
    named = [(row["epoch"], row["broker"]) for row in signs if row["kind"] == "term"]
    named += [(row["epoch"], row["node"]) for row in records if row["kind"] in _BY_CONTROLLERS]
    return max(((epoch, node) for epoch, node in named if epoch and node is not None), default=(0, None))[1]


def _terms(records: Sequence[Row], signs: Sequence[Row]) -> list[Row]:
    """Return a row for each controller epoch that a record names, and one for each range of epochs between them."""
    by_epoch = {row["epoch"]: row["broker"] for row in signs if row["kind"] == "term"}
    of_epoch: dict[int, list[Row]] = {}
    for row in records:
        if row["epoch"]:
            of_epoch.setdefault(row["epoch"], []).append(row)
    if not of_epoch:
        return []
    found: list[Row] = []
    before = min(of_epoch) - 1
    for epoch in sorted(of_epoch.keys() | {each for each in by_epoch if each and before < each < max(of_epoch)}):
        found += _unnamed(before + 1, epoch - 1)
        before = epoch
        own = [row for row in of_epoch.get(epoch, ()) if _decides(row, by_epoch.get(epoch))]
        if own:
            who = min(own, key=lambda row: (row["kind"] not in IN_CONTROLLER_LOG, row["first_us"], row["node"]))["node"]
            found.append(
                _recorded(epoch, who, own, [row for row in signs if row["kind"] == "term" and row["epoch"] == epoch])
            )
            continue
        from_us, to_us = _span(of_epoch.get(epoch, ()))
        who = (
            f"controller {by_epoch[epoch]} in epoch {epoch}"
            if epoch in by_epoch
            else f"the controller of epoch {epoch}"
        )
        when = "" if from_us is None else f" (seen from {_moment(from_us)} to {_moment(to_us)})"
        words = f"no record of {who}{when}: the leaders in that term are unknown"
        found.append(_row("term", str(epoch), False, words, from_us, to_us))
    return found


def _recorded(epoch: int, who: int, own: Sequence[Row], requests: Iterable[Row]) -> Row:
    """Return the row of a term with records; ``requests`` (kind ``term``) show when brokers handled the controller's
    requests."""
    from_us, to_us = _span(own)
    if all(row["source"] == JOURNAL_SOURCE for row in own) and to_us is not None and from_us is not None:
        handled_us = max((row["ts_us"] + (row["duration_us"] or 0) for row in requests), default=to_us)
        if handled_us > to_us + LATE_US:
            words = (
                f"the journal of controller {who} in epoch {epoch} ends at {_moment(to_us)}, and brokers handled its "
                f"requests until {_moment(handled_us)}"
            )
            return _row("term", str(epoch), False, words, from_us, handled_us)
    return _row("term", str(epoch), True, f"recorded by controller {who}", from_us, to_us)


def _unnamed(first: int, last: int) -> list[Row]:
    """Return one row for a range of epochs without records: a single torn number can make a range of millions."""
    if first > last:
        return []
    one = first == last
    who = f"the controller of epoch {first}" if one else f"the controllers of epochs {first} to {last}"
    words = f"no record of {who}: the leaders in {'that term' if one else 'those terms'} are unknown"
    return [_row("term", str(first) if one else f"{first} to {last}", False, words)]


def _decides(row: Row, controller: int | None) -> bool:
    if controller is not None and row["node"] != controller:  # a request's receiver, or one that had resigned
        return False
    if row["source"] == JOURNAL_SOURCE:
        return row["kind"] in WHILE_ACTIVE
    return row["kind"] in (*IN_CONTROLLER_LOG, "partition", "replica", "told", "request")


def _logs(records: Sequence[Row]) -> list[Row]:
    """Return a row for each broker and kind of log.

    The contents decide, since several kinds of log may be in one file.  ``needed`` marks a controller's own log and
    state changes: without them, its term is known only in part.
    """
    found = []
    rows = [row for row in records if row["source"] != JOURNAL_SOURCE and row["node"] is not None]
    controllers = {row["node"] for row in rows if row["kind"] in _BY_CONTROLLERS}
    for node, own in sorted(_by_node(rows).items()):
        for log, kinds in (
            (CONTROLLER_LOG, IN_CONTROLLER_LOG),
            (STATE_CHANGE_LOG, IN_STATE_CHANGE_LOG),
            (SERVER_LOG, IN_SERVER_LOG),
        ):
            there = any(row["source"] == log for row in own) if log != SERVER_LOG else False
            there = there or any(row["kind"] in kinds and _not_from_requests(row, log) for row in own)
            needed = node in controllers and log != SERVER_LOG
            if log == CONTROLLER_LOG and controllers and not there and not needed:
                continue  # it may be empty if the broker never was the controller
            words = f"{log} of broker {node}" + ("" if there else " is missing")
            if not there and needed:
                words += ", and that broker was controller"
            found.append({**_row("log", f"{log} of broker {node}", there, words), "needed": needed})
    return found


def _not_from_requests(row: Row, log: str) -> bool:
    return log != STATE_CHANGE_LOG or row["source"] in (STATE_CHANGE_LOG, SERVER_LOG)


def _gaps(signs: Iterable[Row]) -> list[Row]:
    """Return what one log shows another to lack (``log_gaps``)."""
    found = []
    for row in signs:
        if row["kind"] != "gap":
            continue
        from_us, to_us = row["ts_us"], row["ts_us"] + (row["duration_us"] or 0)
        words = (
            f"{row['detail']} of broker {row['broker']} has a gap from {_moment(from_us)} to {_moment(to_us)}, as "
            f"{row['place']} shows"
        )
        name = f"{row['detail']} of broker {row['broker']}"
        found.append({**_row("gap", name, False, words, from_us, to_us), "needed": row["event"] != UNHEARD})
    return found


def _journals_with_gaps(in_files: Iterable[Row], files_with_gaps: Mapping[str, Row]) -> list[Row]:
    """Return the journals that lack records."""
    found = []
    for name in sorted({row["file"] for row in in_files} & files_with_gaps.keys()):
        words = f"{files_with_gaps[name]['gaps']:,} records are missing in or before the journal {name}"
        found.append({**_row("gap", name, False, words), "needed": True})
    return found


def _lines(rejected: Iterable[Row], in_files: Iterable[Row], needs: Needs) -> list[Row]:
    """Return the lines that were not understood, except the rest of a stack trace that log rotation cut."""
    writers: dict[str, set[int | None]] = {}
    for row in in_files:
        writers.setdefault(row["file"], set()).add(row["node"])
    found = []
    for row in rejected:
        of_trace = row["count"] == 1 and row["source"] != JOURNAL_SOURCE and row["line"].startswith(OF_A_TRACE)
        words = f"{row['count']:,} lines of {row['file']} were not understood: {row['reason']}"
        needed = any(needs.log(row["source"], node) for node in writers.get(row["file"], {None}))
        found.append({**_row("lines", row["file"], of_trace, words), "needed": needed})
    return [row for row in found if not row["known"]]


def _files(lacks: Iterable[Mapping[str, Any]], in_files: Iterable[Row], needs: Needs) -> list[Row]:
    last_us = {row["file"]: row["last_us"] for row in sorted(in_files, key=lambda row: row["last_us"] or 0)}
    found = []
    for lack in lacks:
        needed = needs.log(lack["source"], lack["node"])
        # The end of a journal or a log is needed only if other records go on.
        if lack["process"]:
            needed = needs.goes_on_after_process(lack["process"])
        elif lack.get("at_end"):
            needed = needed and needs.goes_on_after(last_us.get(lack["file"]))
        span = lack.get("from_us"), lack.get("to_us")
        row = _row(lack.get("what", "file"), lack["file"], lack.get("known", False), lack["words"], *span)
        found.append({**row, "needed": needed})
    return found


class Needs:
    """Knows which records show leaderships: journals, and the logs of brokers that were controllers."""

    def __init__(self, records: Sequence[Row], signs: Iterable[Row]) -> None:
        self._records = records
        self._controllers = {
            row["node"] for row in records if row["source"] != JOURNAL_SOURCE and row["kind"] in _BY_CONTROLLERS
        }
        self._controllers |= {row["broker"] for row in signs if row["kind"] == "term"}
        self._in_server_log = {
            row["node"] for row in records if row["source"] == SERVER_LOG and row["kind"] in IN_CONTROLLER_LOG
        }

    def log(self, source: str, node: int | None) -> bool:
        """Return whether a controller's records may be among those of a broker's log of this kind."""
        if source in ("", JOURNAL_SOURCE):
            return True
        among = self._in_server_log if source == SERVER_LOG else self._controllers
        return bool(among) if node is None else node in among

    def goes_on_after_process(self, process: str) -> bool:
        """Return whether any process has records after the last one of this process; True if it has none."""
        return self.goes_on_after(
            max((row["last_us"] for row in self._records if row["process"] == process), default=None)
        )

    def goes_on_after(self, last_us: int | None) -> bool:
        """Return whether any record is later; True for None, a time that is not known."""
        return last_us is None or any(row["last_us"] > last_us for row in self._records if row["last_us"] is not None)


def _moment(us: int | None) -> str:
    return "?" if us is None else time_of(us).strftime("%Y-%m-%d %H:%M:%S")
