"""Measures how soon the live one of two replicas leads when they die in turn and brokers write ISRs themselves.

    scripts/bench pair --release 2.6.3 --rounds 50 --controller both
    scripts/bench pair --release 3.9.1 --protocol 2.6 --rounds 50

Prints a line for each round as it ends, and the medians.  ``both``: ours and Kafka's controller take turns of five
rounds on one cluster, with the same delays.  ``aiocontroller.lab.kafka.pair`` explains what a round is.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
from pathlib import Path

from aiocontroller.lab.cluster.real_kafka import release
from aiocontroller.lab.kafka import pair
from aiocontroller.lab.kafka.played_cluster import zookeeper_cluster

SETTINGS = {
    "zookeeper.session.timeout.ms": "6000",
    "replica.lag.time.max.ms": "10000",
    "auto.leader.rebalance.enable": "false",
}
CONTROLLERS = {"aiocontroller": ("aiocontroller",), "kafka": ("kafka",), "both": ("kafka", "aiocontroller")}


async def measure(options: argparse.Namespace, found: dict[str, list[pair.Round]]) -> None:
    """Play the rounds, and add each to ``found``, by controller, when it ends."""

    def show(controller: str, number: int, one: pair.Round) -> None:
        found.setdefault(controller, []).append(one)
        print(
            f"{controller:13} {number:3} after {one.delay_s:4.2f} s: led {one.after_kill_s:6.3f} s after the kill, "
            f"{one.after_session_s * 1000:6.1f} ms after the session{', leaderless before' * one.leaderless}",
            flush=True,
        )

    protocol = {"inter.broker.protocol.version": options.protocol} if options.protocol else {}
    with tempfile.TemporaryDirectory(prefix="pair-") as folder:
        async with zookeeper_cluster(
            Path(folder), version=release(options.release), overrides=SETTINGS | protocol
        ) as cluster:
            await pair.rounds(cluster, CONTROLLERS[options.controller], options.rounds, options.seed, on_round=show)


def quartiles(values: list[float], unit: str) -> str:
    low, middle, high = statistics.quantiles(values, n=4) if len(values) > 1 else values * 3
    return f"median {middle:.3f} {unit} (quartiles {low:.3f} to {high:.3f}, {min(values):.3f} to {max(values):.3f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--release", default="3.9.1")
    parser.add_argument("--protocol", help="inter.broker.protocol.version; by default the release's own")
    parser.add_argument("--controller", choices=tuple(CONTROLLERS), default="aiocontroller")
    parser.add_argument("--rounds", type=int, default=10, help="under each controller")
    parser.add_argument("--seed", type=int, default=26)
    options = parser.parse_args()
    found: dict[str, list[pair.Round]] = {}
    try:
        asyncio.run(measure(options, found))
    finally:
        for controller, rounds in found.items():
            print(f"{controller} on {options.release}, protocol {options.protocol or 'its own'}, {len(rounds)} rounds")
            print("  after the kill:   ", quartiles([one.after_kill_s for one in rounds], "s"))
            print("  after the session:", quartiles([one.after_session_s * 1000 for one in rounds], "ms"))
            print("  without a leader in ZooKeeper before:", sum(one.leaderless for one in rounds), "rounds")


if __name__ == "__main__":
    main()
