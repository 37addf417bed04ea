"""When a broker really died, before its controller noticed: the computation for one death.

A broker's ZooKeeper session outlives its process by up to the session timeout.  The evidence, best first:

* ``peers``: a replica's fetcher lost its connection to the broker.  A dying process ends its connections, and fetchers
  send requests all the time, so the broker was alive ``NOTICED_WITHIN_US`` before; the last line of its own log may be
  later.
* ``own session``: a paused process logs, when it resumes, how long it has not heard from ZooKeeper.
* ``session``: only the end of the session, which comes a timeout after its last sign of life.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from aiocontroller.analytics.gold.rows import Row
from aiocontroller.analytics.log_evidence import ENDED, SHUT_DOWN

NOTICED_WITHIN_US: Final = 1_000_000
"""A fetch request waits for half a second (``replica.fetch.wait.max.ms``); the same again for a busy machine."""
DEFAULT_SESSION_US: Final = 18_000_000
"""``zookeeper.session.timeout.ms`` since 2.5, if no log shows the negotiated value; before, it was 6 s."""
EXPIRY_US: Final = 3_000_000
"""ZooKeeper ends sessions at whole ticks (2 s by default), and the controller must be notified."""
LEAVES_WITHIN_US: Final = 10_000_000
"""The longest time between the end of a fetcher and the end of the shutdown to which it belongs."""
LONGEST_TRY_US: Final = 30_000_000
"""The longest request of a fetcher to a host that does not answer: ``replica.socket.timeout.ms``."""
AWAKE_WITHIN_US: Final = 600_000_000
"""The longest pause of a process that can be distinguished from a death."""


@dataclass(frozen=True)
class Onset:
    """A failure happened at ``us`` ± ``error_us``; ``evidence`` is the kind of evidence, ``places`` are the records."""

    us: int
    error_us: int
    evidence: str
    how: str
    places: tuple[str, ...]


class Signs:
    """What the records of one cluster show about brokers' processes: rows of ``facts.milestones``."""

    def __init__(self, milestones: Sequence[Row]) -> None:
        self._by: dict[tuple[str, int], list[Row]] = {}
        for row in sorted(milestones, key=lambda r: (r["ts_us"], r["place"])):
            of = row["node"] if row["kind"] == "session" else row["broker"]
            self._by.setdefault((row["kind"], of), []).append(row)
        agreed = [r["duration_us"] for (kind, _), rows in self._by.items() if kind == "session" for r in rows
                  if r["detail"] == "ESTABLISHED" and r["duration_us"]]  # fmt: skip
        self._longest_us = max(agreed, default=DEFAULT_SESSION_US)
        self._agreed_us = {of: rows[-1]["duration_us"] for (kind, of), all_rows in self._by.items() if kind == "session"
                           if (rows := [r for r in all_rows if r["detail"] == "ESTABLISHED"])}  # fmt: skip

    def session_us(self, broker: int) -> int:
        """Return the broker's last negotiated timeout, or the longest of the others if it has logged none."""
        return int(self._agreed_us.get(broker) or self._longest_us)

    def onset(self, broker: int, noticed_us: int, error_us: int, came_us: int) -> Onset:
        """Return the onset of a death that a controller noticed; ``came_us`` is the broker's last known start."""
        session_us = self.session_us(broker)
        earliest_us = max(came_us, noticed_us - session_us - LONGEST_TRY_US)
        end = self._log_end(broker, came_us, noticed_us)
        how = "unknown" if end is None else {ENDED: "killed", SHUT_DOWN: "stopped"}[end["detail"]]
        alive_us = came_us if end is None else end["ts_us"]
        places = () if end is None else (end["place"],)
        own_error_us = error_us if end is None else end["ts_error_us"]
        hung = self._hung(broker, noticed_us) if end is None else None
        lost = [
            row
            for row in self._of("peer_lost", broker)
            if max(earliest_us, alive_us - row["ts_error_us"] - own_error_us) <= row["ts_us"] <= noticed_us + error_us
            and not self._leaves(row)
        ]
        if hung is not None:
            how = "hung"
            heard_us = hung["ts_us"] - hung["duration_us"]
            first_us = min([heard_us + session_us // 3 + EXPIRY_US // 3, *(r["ts_us"] for r in lost)])
            places = (hung["place"], *(r["place"] for r in lost[:1]))
            return _between(heard_us, first_us, hung["ts_error_us"], "own session", how, places)
        if lost:
            first = lost[0]
            low_us = min(max(alive_us, first["ts_us"] - NOTICED_WITHIN_US), first["ts_us"])
            spread_us = first["ts_us"] - low_us + first["ts_error_us"] + own_error_us
            return Onset(first["ts_us"], spread_us, "peers", how, (first["place"], *places))
        low_us = min(max(alive_us, noticed_us - session_us - EXPIRY_US), noticed_us)
        return _between(low_us, noticed_us, error_us + own_error_us, "session", how, places)

    def _of(self, kind: str, broker: int) -> list[Row]:
        return self._by.get((kind, broker), [])

    def _leaves(self, lost: Row) -> bool:
        """Return whether the reporting broker itself left: its own fetchers end when it shuts down."""
        ends = (r for r in self._of("log_end", lost["node"]) if r["detail"] == SHUT_DOWN)
        return any(0 <= r["ts_us"] - lost["ts_us"] + r["ts_error_us"] <= LEAVES_WITHIN_US for r in ends)

    def _log_end(self, broker: int, came_us: int, noticed_us: int) -> Row | None:
        """Return the last ``log_end`` up to the death, since a broker writes nothing afterwards."""
        ends = [r for r in self._of("log_end", broker) if came_us - r["ts_error_us"] <= r["ts_us"]]
        ends = [r for r in ends if r["ts_us"] <= noticed_us + r["ts_error_us"]]
        return ends[-1] if ends else None

    def _hung(self, broker: int, noticed_us: int) -> Row | None:
        """Return the record in which a resumed process reported its lost session."""
        return next(
            (
                row
                for row in self._of("session", broker)
                if row["detail"] == "TIMED_OUT"
                and row["duration_us"] is not None
                and row["ts_us"] - row["duration_us"] <= noticed_us <= row["ts_us"] + EXPIRY_US
                and row["ts_us"] <= noticed_us + AWAKE_WITHIN_US
            ),
            None,
        )


def _between(low_us: int, high_us: int, more_us: int, evidence: str, how: str, places: tuple[str, ...]) -> Onset:
    low_us = min(low_us, high_us)
    return Onset((low_us + high_us) // 2, (high_us - low_us + 1) // 2 + more_us, evidence, how, places)
