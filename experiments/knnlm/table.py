#!/usr/bin/python3
"""Tables and curves of what experiments/knnlm/run measured.

    table.py NAME WORK OUT    reads WORK/*.tune.json and *.eval.json; writes OUT/NAME.csv, OUT/NAME-k.csv, OUT/NAME-lambda.csv and
                              their plots (bench/plot.sh), and prints the table in Markdown
"""
import csv
import glob
import json
import math
import os
import subprocess
import sys

name, work, out = sys.argv[1:4]
order = ["ffn", "wiki", "books", "cache", "codes-64", "codes-16", "ip", "ffn-raw", "attention", "attention-raw", "output-norm", "output"]


def load(path):
    with open(path) as file:
        return json.load(file)


runs = sorted((os.path.basename(p).split(".")[0] for p in glob.glob(f"{work}/*.tune.json")), key=order.index)
head = ["run", "valid_lm", "valid", "valid_at_first_T", "test_lm", "test", "test_bins", "lambda", "temperature", "k", "cache_lambda"]
first = load(f"{work}/{runs[0]}.tune.json")


def at_first_temperature(tune):
    """Perplexity at the temperature tried that is nearest to the best of the first run, with as many neighbours."""
    points = [p for p in tune["points"] if p["k"] == first["k"] and (p["cache_lambda"] > 0) == (tune["cache"]["size"] > 0)]
    near = min(points, key=lambda p: abs(math.log(p["temperature"] / first["temperature"])), default=None)
    return f"{near['ppl']:.2f}" if near and abs(math.log(near["temperature"] / first["temperature"])) < 0.2 else ""


rows = []
for run in runs:
    tune = load(f"{work}/{run}.tune.json")
    tests = [load(f"{work}/{run}.{kind}.json") if os.path.exists(f"{work}/{run}.{kind}.json") else None
             for kind in ("eval", "adaptive")]
    ppl = lambda result, key: f"{result[key]:.2f}" if result else ""
    rows.append([run, f"{tune['ppl_lm']:.2f}", f"{tune['ppl']:.2f}", at_first_temperature(tune), ppl(tests[0], "ppl_lm"), ppl(tests[0], "ppl"),
                 ppl(tests[1], "ppl"), f"{tune['lambda']:.3f}", f"{tune['temperature']:.4g}", tune["k"],
                 f"{tune['cache']['lambda']:.3f}"])
    if run == "cache":
        print(f"model and cache alone, valid: {tune['ppl_cache']:.2f}\n")
with open(f"{out}/{name}.csv", "w", newline="") as file:
    csv.writer(file, lineterminator="\n").writerows([head] + rows)
print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
for row in rows:
    print("| " + " | ".join(str(x) for x in row) + " |")

# The first run is the paper's setting: perplexity by k (at the best temperature and lambda of each) and by lambda.
best = {}
for point in first["points"]:
    best[point["k"]] = min(best.get(point["k"], 1e30), point["ppl"])
curves = {"k": [("k", "perplexity", "model_alone")] + [(k, f"{p:.4f}", f"{first['ppl_lm']:.4f}") for k, p in sorted(best.items())],
          "lambda": [("lambda", "perplexity", "model_alone")] + [(f"{x:.2f}", f"{p:.4f}", f"{first['ppl_lm']:.4f}")
                                                                for x, p in first["by_lambda"]
                                                                if p is not None and p < 1.3 * first["ppl_lm"]]}
for kind, points in curves.items():
    with open(f"{out}/{name}-{kind}.csv", "w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(points)
    switches = ["-x"] if kind == "k" else []
    subprocess.run(["bench/plot.sh", *switches, "-t", f"{name}: perplexity by {kind} (validation)", f"{out}/{name}-{kind}.csv",
                    f"{out}/{name}-{kind}", kind, "perplexity", "model_alone"], check=True)
