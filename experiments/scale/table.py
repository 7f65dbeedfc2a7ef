#!/usr/bin/python3
"""The table and the plots of what experiments/scale/run measured.

    table.py NAME    reads work/scale/NAME/SIZE/*.json; writes experiments/scale/NAME.csv and its plots (bench/plot.sh), and
                     prints the table in Markdown
"""
import csv
import json
import os
import subprocess
import sys

name = sys.argv[1]
work, out = f"work/scale/{name}", "experiments/scale"


def load(size, step):
    path = f"{work}/{size}/{step}"
    if not os.path.exists(path):
        return None
    with open(path) as file:
        text = file.read()
    return json.loads(text) if text.startswith("{") else sorted(float(x) for x in text.split())


def median(values):
    return values[len(values) // 2]


def gigabytes(size, step):
    return f"{load(size, step + '.peak')['resident_kb'] / 1e6:.2f}"


head = ["entries", "build_s", "index_s", "lists", "probes", "rows_a_query", "bytes_an_entry", "query_ms", "batch_queries_s", "alone_tokens_s",
        "eval_tokens_s", "times", "search_s_of_250K", "ppl_alone", "ppl", "lambda", "build_GB", "index_GB", "eval_GB", "bounded_GB"]
rows, built = [], 0.0
for size in ["1", "3", "10", "30", "all"]:
    ev = load(size, "eval.json")
    if not ev:
        continue
    info, tune, alone = load(size, "info.json"), load(size, "tune.json"), load(size, "alone.json")
    build, index = load(size, "build.json"), load(size, "index.json")
    built += build["seconds"]
    lists, probes, entries = info["index"]["lists"], info["index"]["probes"], info["entries"]
    rows.append([entries, f"{built:.0f}", f"{sum(index['seconds'].values()):.0f}", lists, probes,
                 f"{probes * entries / lists * info['index']['imbalance']:.0f}", f"{info['bytes'] / entries:.1f}",
                 f"{median(load(size, 'single.json')):.3f}", f"{median(load(size, 'batch.json')):.0f}",
                 f"{alone['tokens_per_second']:.0f}", f"{ev['tokens_per_second']:.0f}", f"{ev['seconds'] / alone['seconds']:.2f}",
                 f"{ev['seconds_search'] / ev['tokens'] * 250e3:.1f}", f"{ev['ppl_lm']:.2f}", f"{ev['ppl']:.2f}", f"{tune['lambda']:.3f}",
                 gigabytes(size, "build"), gigabytes(size, "index"), gigabytes(size, "eval"), gigabytes(size, "eval-bounded")])
with open(f"{out}/{name}.csv", "w", newline="") as file:
    csv.writer(file, lineterminator="\n").writerows([head] + rows)
print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
for row in rows:
    print("| " + " | ".join(str(x) for x in row) + " |")
if len(rows) > 1:
    for kind, columns in {"cost": ["index_s", "query_ms", "search_s_of_250K"], "perplexity": ["ppl", "ppl_alone"]}.items():
        subprocess.run(["bench/plot.sh", "-L", "-t", f"{name}: by entries", f"{out}/{name}.csv", f"{out}/{name}-{kind}", "entries"] + columns,
                       check=True, stdout=subprocess.DEVNULL)
