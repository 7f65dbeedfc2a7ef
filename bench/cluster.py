#!/usr/bin/python3 -I
"""What many machines would do, from what one was measured to do.
    bench/cluster.py MEASURED.json [LATENCY_SECONDS BANDWIDTH_BYTES_PER_SECOND]
MEASURED.json has what `bench/run cluster` measured with one thread a rank: seconds of the model per token ("model"); of a batched search
per query what every shard costs ("search_fixed") and what shards share ("search_shared"); of one search alone likewise ("single_fixed",
"single_shared"); "dimension" and "k"; "cores" of this machine, by what a rank of as many threads did in times of one thread; and by the
number of ranks what was real here: "real" tokens per second, "real_single" seconds of one search, "bytes" per query, of all messages.
Prints what the model of cost says of ranks that share this machine's cores beside what was real, then throughput and latency of machines
with a network between them. Searches of ranks are taken to vary by a quarter (standard deviation of the logarithm)."""

import json
import math
import random
import sys

RANKS = (1, 2, 4, 8, 16, 32, 64, 128)
QUERIES = 4000  # drawn for the tail
SPREAD = 0.25


# Bytes of all messages for one query among many: what goes to every other rank (its state and lists, and limits), and the k
# neighbours, of which a rank has one in P already. Both by what was counted with 2 and 4 ranks.
def wire_bytes(m, ranks):
    two, four = m["bytes"]["2"], m["bytes"]["4"]
    neighbors = max(0, (3 * two - four) / 0.75)
    return (two - neighbors / 2) * (ranks - 1) + neighbors * (ranks - 1) / ranks


# One rank per shard. Every rank runs the model for its share of the tokens, searches its shard for all of them, and merges what it owns.
def rank_seconds(m, ranks):
    return (m["model"] + m["search_shared"]) / ranks + m["search_fixed"]


def rate_here(m, ranks):
    return 1 / (rank_seconds(m, ranks) * max(1, ranks / m["cores"]))


# All network cards work at once.
def rate_apart(m, ranks, bandwidth):
    return 1 / (rank_seconds(m, ranks) + wire_bytes(m, ranks) / ranks / bandwidth)


def single_seconds(m, ranks):
    return m["single_fixed"] + m["single_shared"] / ranks


# A question to every rank, and k neighbours from each, through one network card; of more than 8 ranks (MANY_RANKS of src/knn) 16
# distances first, then k in all.
def single_wire(m, ranks, latency, bandwidth):
    state, neighbors = 4 * m["dimension"] + 64, 16 * m["k"]
    if ranks == 1:
        return 0
    if ranks <= 8:
        return 2 * latency + (ranks - 1) * (state + neighbors) / bandwidth
    return 4 * latency + ((ranks - 1) * (state + 64) + neighbors) / bandwidth


# One query waits for the slowest of all shards.
def latencies(m, ranks, latency, bandwidth, draw):
    wire, search = single_wire(m, ranks, latency, bandwidth), single_seconds(m, ranks)
    return sorted(wire + max(search * math.exp(draw.gauss(0, SPREAD)) for _ in range(ranks)) for _ in range(QUERIES))


def print_here(m):
    print(f"ranks of one thread on this machine, whose cores do together what {m['cores']:.2f} would that do not disturb each other")
    print(f"{'ranks':>6} {'tokens/s':>10} {'real':>10} {'differs':>8} {'query ms, real':>15} {'bytes per query':>16}")
    for ranks in (1, 2, 4):
        rate, real = rate_here(m, ranks), m["real"][str(ranks)]
        sent = m["bytes"].get(str(ranks), 0)
        print(f"{ranks:>6} {rate:>10.0f} {real:>10.0f} {rate / real - 1:>8.1%} {m['real_single'][str(ranks)] * 1e3:>15.3f} {sent:>16.0f}")


def print_apart(m, latency, bandwidth):
    draw = random.Random(1)
    print(f"machines: latency {latency * 1e6:.0f} us, bandwidth {bandwidth / 1e9:.3g} GB/s")
    print(f"{'ranks':>6} {'tokens/s':>10} {'query ms':>9} {'p99 ms':>8} {'bytes per query':>16}")
    for ranks in RANKS:
        waits = latencies(m, ranks, latency, bandwidth, draw)
        middle, tail = waits[QUERIES // 2] * 1e3, waits[QUERIES * 99 // 100] * 1e3
        print(f"{ranks:>6} {rate_apart(m, ranks, bandwidth):>10.0f} {middle:>9.3f} {tail:>8.3f} {wire_bytes(m, ranks):>16.0f}")


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        m = json.load(file)
    print_here(m)
    print_apart(m, float(sys.argv[2]) if len(sys.argv) > 2 else 50e-6, float(sys.argv[3]) if len(sys.argv) > 3 else 1.25e9)


main()
