#!/usr/bin/python3 -I
"""What many machines would do, from what one was measured to do.
    bench/cluster.py MEASURED.json [LATENCY_SECONDS BANDWIDTH_BYTES_PER_SECOND]
MEASURED.json has what `bench/run cluster` measured: seconds of the model per token ("model"), of a batched search per query, the part
that every shard costs, merging included ("search_fixed"), and the part that shards share ("search_shared"), of one search alone likewise
("single_fixed", "single_shared"), bytes per query and shard ("bytes"), and "real": {"P": tokens per second of P ranks here}. Prints
throughput and latency over P beside what was real. Searches of ranks are taken to vary by a quarter (standard deviation of the logarithm)."""

import json
import math
import random
import sys

RANKS = (1, 2, 4, 8, 16, 32, 64, 128)
QUERIES = 4000  # drawn for the tail
SPREAD = 0.25


# One rank per shard. Model, searches and merging follow each other; rank 0 alone merges, and takes in the answers of all shards but its own
# through one network card.
def tokens_per_second(m, ranks, bandwidth):
    wire = (ranks - 1) * m["bytes"] / bandwidth
    return 1 / (m["model"] / ranks + m["search_shared"] / ranks + m["search_fixed"] * ranks + wire)


# One query waits for the slowest of all shards.
def latencies(m, ranks, latency, bandwidth, draw):
    wire = (2 * latency if ranks > 1 else 0) + (ranks - 1) * m["bytes"] / bandwidth
    search = m["single_fixed"] + m["single_shared"] / ranks
    return sorted(wire + max(search * math.exp(draw.gauss(0, SPREAD)) for _ in range(ranks)) for _ in range(QUERIES))


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        m = json.load(file)
    latency = float(sys.argv[2]) if len(sys.argv) > 2 else 50e-6
    bandwidth = float(sys.argv[3]) if len(sys.argv) > 3 else 1.25e9
    draw = random.Random(1)
    print(f"latency {latency * 1e6:.0f} us, bandwidth {bandwidth / 1e9:.3g} GB/s, {m['bytes']:.0f} bytes per query and shard")
    print(f"{'ranks':>6} {'tokens/s':>10} {'real here':>10} {'query ms':>9} {'p99 ms':>8}")
    for ranks in RANKS:
        rate, real = tokens_per_second(m, ranks, bandwidth), m["real"].get(str(ranks))
        waits = latencies(m, ranks, latency, bandwidth, draw)
        told = f"{real:.0f}" if real else ""
        print(f"{ranks:>6} {rate:>10.0f} {told:>10} {waits[QUERIES // 2] * 1e3:>9.3f} {waits[QUERIES * 99 // 100] * 1e3:>8.3f}")


main()
