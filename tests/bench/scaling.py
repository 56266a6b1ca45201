#!/usr/bin/env python3
"""Measures how train_gpt scales: over ranks and ZeRO stages, and with the size of the model.

    python3 tests/bench/scaling.py [flags]

ranks   one model and one global batch on 1, 2 and 4 ranks in every stage: tokens per second, and the peak memory of
        the largest rank beside the trainer's plan. Takes mpirun.
growth  one process; the sequence T, the channels C or the layers L doubled three times: time and memory of a step as
        powers of what grew, beside the powers that counted multiply-adds and the plan give.

Tables in Markdown go to stdout (--write-page: into scaling.md beside this script too), everything measured to a JSON
file. Exit code 1 when a program fails, or when runs that train the same part in a loss by more than 1e-4.

All runs of a part take turns, --rounds times; what counts of each is its fastest step but the first. Two cores take
about three minutes; --only, --steps and --rounds make it shorter.
"""

import argparse
import json
import math
import os
import shutil
import sys
import tempfile
import textwrap

from page import renew
from vs_pytorch import HERE, ROOT, TOLERANCE, Failure, cores, gpt, load, machine, prepare, train_trencadis

PAGE = os.path.join(HERE, "scaling.md")
VOCABULARY = 256  # bytes
HEAD_SIZE = 64
RANKS = (1, 2, 4)
STAGES = (0, 1, 2, 3)
BAR = 64  # characters of the longest bar

# The state outweighs the activations: 10.8 million parameters, 512 tokens a step.
SHARDED = {"model": gpt(6, 6, 384, 64, VOCABULARY), "batch": 8}


def grown(layers, channels, length, batch):
    return {"model": gpt(layers, channels // HEAD_SIZE, channels, length, VOCABULARY), "batch": batch}


# What grows: each of four works has twice the former's. "power" is what the formula tends to.
GROWTH = {
    "T": {"title": "T, tokens of a sequence", "power": 2, "fixed": "L 2, C 64, 8 sequences a step",
          "works": {T: grown(2, 64, T, 8) for T in (512, 1024, 2048, 4096)}},
    "C": {"title": "C, channels", "power": 2, "fixed": "L 4, 8 sequences of 128 tokens a step",
          "works": {C: grown(4, C, 128, 8) for C in (64, 128, 256, 512)}},
    "L": {"title": "L, layers", "power": 1, "fixed": "C 128, 16 sequences of 128 tokens a step",
          "works": {L: grown(L, 128, 128, 16) for L in (1, 2, 4, 8)}},
}


def multiply_adds(work):
    """Of the matrix products of one step, with their backward; scaling.md explains each term."""
    model = work["model"]
    T, C, L, V = (model[name] for name in ("block_size", "n_embd", "n_layer", "vocab_size"))
    matrices = 3 * 12 * C * C
    attention = 7 * C * (T + 1) / 2
    head = 3 * V * C
    return work["batch"] * T * (L * (matrices + attention) + head)


def exponent(values):
    """The least-squares slope of log y over log x, of {x: y}."""
    xs, ys = [math.log(x) for x in values], [math.log(y) for y in values.values()]
    x_mean, y_mean = sum(xs) / len(xs), sum(ys) / len(ys)
    return sum((x - x_mean) * (y - y_mean) for x, y in zip(xs, ys)) / sum((x - x_mean) ** 2 for x in xs)


# -- runs --------------------------------------------------------------------------------------------------------------


def run(name, work, ranks, stage, options):
    """One run: {"step_seconds", "losses", "peak_bytes" of each rank, "memory" and "traffic" as in run.json}."""
    folder = tempfile.mkdtemp(prefix="scaling-")
    try:
        mode = {"ranks": ranks, "flags": f"-z {stage} --dropout 0"}
        result = train_trencadis(work, mode, options, folder)
        report = load(os.path.join(folder, "run.json"))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if report["world"] != ranks:
        raise Failure(f"{options.trencadis} ran on {report['world']} ranks under mpirun -np {ranks}: it was built "
                      "without MPI, or with another one than mpirun's")
    print(f"{name}: {min(result['step_seconds'][1:]) * 1e3:.1f} ms", file=sys.stderr, flush=True)
    return result | {"memory": {row["name"]: row for row in report["memory"]}, "traffic": report["traffic"]}


def run_in_turns(cases, options):
    """cases: {key: (name, work, ranks, stage)}. {key: what was measured}; a round runs every case once."""
    runs = {key: [] for key in cases}
    for turn in range(options.rounds):
        for key, (name, work, ranks, stage) in cases.items():
            runs[key].append(run(f"round {turn + 1}, {name}", work, ranks, stage, options))
    return {key: summary(cases[key][1], of_case) for key, of_case in runs.items()}


def summary(work, runs):
    # Rank 0 tells the times. The first step does not count: it takes memory, and where another rank began it earlier,
    # rank 0 sees only a part of it. Later ones begin together, when all know the loss of the one before.
    fastest = min(min(run["step_seconds"][1:]) for run in runs)
    tokens = work["batch"] * work["model"]["block_size"]
    memory = runs[0]["memory"]
    return {"step_ms": fastest * 1e3, "tokens_per_sec": tokens / fastest,
            "peak_bytes": max(max(run["peak_bytes"]) for run in runs),
            "above_start_bytes": max(run["memory"]["resident, above start"]["measured"] for run in runs),
            "planned_bytes": memory["resident, above start"]["predicted"],
            "planned": {name: row["predicted"] for name, row in memory.items() if row["predicted"] >= 0},
            "sent_bytes": sum(row["measured"] for row in runs[0]["traffic"]),
            "sent_planned_bytes": sum(row["predicted"] for row in runs[0]["traffic"]),
            "multiply_adds": multiply_adds(work), "work": work, "runs": runs}


# -- ranks and stages --------------------------------------------------------------------------------------------------


def measure_ranks(options):
    if shutil.which("mpirun") is None:
        raise Failure("mpirun is not there: install Open MPI, or measure --only growth")
    cases = {(ranks, stage): (f"{ranks} rank{'s' * (ranks > 1)}, -z {stage}", SHARDED, ranks, stage)
             for ranks in RANKS for stage in (STAGES if ranks > 1 else STAGES[:1])}
    results = run_in_turns(cases, options)
    reference = next(iter(results.values()))["runs"][0]["losses"]
    for (ranks, stage), result in results.items():
        away = max(abs(a - b) for run in result["runs"] for a, b in zip(run["losses"], reference))
        if not away <= TOLERANCE:  # also where a loss is not a number
            raise Failure(f"{ranks} ranks, -z {stage}: losses are {away:.1e} away from those of one process, more than "
                          f"{TOLERANCE}: the runs do not train the same")
    return results


def bar(result, scale):
    """The planned peak of a rank, a letter for each kind of memory; ends are rounded, so no error adds up."""
    drawn, until = "", 0
    for name, letter in (("parameters", "p"), ("gradients", "g"), ("optimizer state", "o"), ("activations", "a"),
                         ("communication", "c")):
        until += result["planned"].get(name, 0)
        drawn += letter * (round(until * scale) - len(drawn))
    return drawn


def ranks_lines(results, options):
    model, batch = SHARDED["model"], SHARDED["batch"]
    lines = [*paragraph(f"{model['n_layer']} layers, {model['n_embd']} channels, {batch} sequences of "
                        f"{model['block_size']} tokens in a step over all ranks. {about_runs(options)}"), ""]
    crowded = [str(ranks) for ranks in RANKS if ranks > cores()]
    if crowded:
        lines += [*paragraph(f"**{' and '.join(crowded)} ranks share {about_cores()} here.** Their tokens/s show what "
                             "sharding, communication and the taking of turns cost, not a speedup."), ""]
    lines += ["| ranks | stage | threads a rank | ms a step | tokens/s | of one process | peak MB of a rank "
              "| above its start | planned | sent MB a step | planned |",
              "| ---: | --- |" + " ---: |" * 9]
    alone = next(iter(results.values()))["tokens_per_sec"]
    for (ranks, stage), result in results.items():
        lines.append(f"| {ranks} | `-z {stage}` | {max(1, options.threads // ranks)} | {result['step_ms']:.1f} | "
                     f"{result['tokens_per_sec']:.0f} | **{result['tokens_per_sec'] / alone:.2f}** | "
                     + " | ".join(f"{result[key] / 1e6:.0f}" for key in
                                  ("peak_bytes", "above_start_bytes", "planned_bytes"))
                     + f" | {result['sent_bytes'] / 1e6:.1f} | {result['sent_planned_bytes'] / 1e6:.1f} |")
    scale = BAR / max(result["planned_bytes"] for result in results.values())
    lines += ["", "The plan as a picture, and what was measured above the start:", "", "```",
              "p parameters   g gradients   o optimizer state   a activations   c communication", ""]
    lines += [f"{ranks} rank{'s' if ranks > 1 else ' '} -z {stage} |{bar(result, scale):<{BAR}}| "
              f"{result['above_start_bytes'] / 1e6:4.0f} MB" for (ranks, stage), result in results.items()]
    return lines + ["```"]


# -- growth ------------------------------------------------------------------------------------------------------------


def measure_growth(options):
    return run_in_turns({(name, value): (f"{name} = {value}", work, 1, 0)
                         for name, sweep in GROWTH.items() for value, work in sweep["works"].items()}, options)


def growth_lines(results, options):
    lines = [*paragraph(f"One process. {about_runs(options)}"), "",
             "| grows | time, measured | time, formula | the formula tends to | memory, measured | memory, planned |",
             "| --- |" + " ---: |" * 5]
    for name, sweep in GROWTH.items():
        of_sweep = {value: results[name, value] for value in sweep["works"]}
        powers = {key: exponent({value: result[key] for value, result in of_sweep.items()})
                  for key in ("step_ms", "multiply_adds", "above_start_bytes", "planned_bytes")}
        lines.append(f"| {sweep['title']} | **{powers['step_ms']:.2f}** | {powers['multiply_adds']:.2f} | "
                     f"{sweep['power']} | **{powers['above_start_bytes']:.2f}** | {powers['planned_bytes']:.2f} |")
    lines += ["", "The points behind these powers:", "",
              "| grows | to | what stays | ms a step | tokens/s | 10⁹ multiply-adds a step | 10⁹ in a second "
              "| MB above the start | planned |", "| --- | ---: | --- |" + " ---: |" * 6]
    for (name, value), result in results.items():
        lines.append(f"| {name} | {value} | {GROWTH[name]['fixed']} | {result['step_ms']:.1f} | "
                     f"{result['tokens_per_sec']:.0f} | {result['multiply_adds'] / 1e9:.2f} | "
                     f"{result['multiply_adds'] / result['step_ms'] / 1e6:.0f} | "
                     f"{result['above_start_bytes'] / 1e6:.0f} | {result['planned_bytes'] / 1e6:.0f} |")
    return lines


# -- the page ----------------------------------------------------------------------------------------------------------

PARTS = {"ranks": (measure_ranks, ranks_lines), "growth": (measure_growth, growth_lines)}


def about_cores():
    return f"{cores()} core{'s' * (cores() > 1)}"


def about_runs(options):
    threads = f", {options.threads} threads in all" if options.threads != cores() else ""
    return (f"{machine()['processor']}, {about_cores()}{threads}; fastest of {options.rounds} x {options.steps} steps, "
            "the runs in turns.")


def paragraph(text):
    return textwrap.wrap(text, 120, break_long_words=False, break_on_hyphens=False)


def marks(part):
    return f"<!-- scaling.py --write-page: {part} begin -->", f"<!-- scaling.py: {part} end -->"


def read_page():
    """The page's text, which must hold the marks of every part."""
    try:
        with open(PAGE, encoding="utf-8") as file:
            text = file.read()
    except FileNotFoundError:
        raise Failure(f"{PAGE} is not there, which --write-page renews") from None
    for part in PARTS:
        for mark in marks(part):
            if text.count(mark) != 1:
                raise Failure(f"{PAGE} holds {text.count(mark)} lines {mark}, not 1")
    return text


def write_page(tables):
    """Renews the parts that were measured; the rest of the page stays."""
    text = read_page()
    for part, lines in tables.items():
        text = renew(text, *marks(part), lines)
    with open(PAGE, "w", encoding="utf-8") as file:
        file.write(text)


def save(results, options):
    parts = {part: [dict(zip(("ranks", "stage") if part == "ranks" else ("grows", "value"), key)) | result
                    for key, result in of_part.items()] for part, of_part in results.items()}
    os.makedirs(os.path.dirname(os.path.abspath(options.json)), exist_ok=True)
    with open(options.json, "w", encoding="utf-8") as file:
        json.dump({"machine": machine(), "steps": options.steps, "rounds": options.rounds, "threads": options.threads,
                   **parts}, file, indent=1)


def at_least(least):
    def number(text):
        if not text.isdigit() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text} is not a number of at least {least}")
        return int(text)
    return number


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", dest="parts", choices=PARTS, default=list(PARTS),
                        help="measure this part alone; with --write-page the other one stays as it is")
    parser.add_argument("--rounds", type=at_least(1), default=2, help="runs of each case, in turns (2)")
    parser.add_argument("--steps", type=at_least(2), default=6,
                        help="steps of each run, of which the first does not count (6)")
    parser.add_argument("--threads", type=at_least(1), default=cores(), help="over all ranks (all cores)")
    parser.add_argument("--seed", type=int, default=1337)
    parser.add_argument("--data", help="a text (the corpus of quickstart.sh)")
    parser.add_argument("--trencadis", default=os.path.join(ROOT, "build", "release", "bin", "train_gpt"),
                        help="the trainer (build/release/bin/train_gpt)")
    parser.add_argument("--json", default=os.path.join(ROOT, "out", "bench", "scaling.json"),
                        help="where all numbers go (out/bench/scaling.json)")
    parser.add_argument("--write-page", action="store_true", help="renew what was measured in scaling.md")
    options = parser.parse_args()
    options.only = ["trencadis"]  # which of vs_pytorch.py's two programs prepare() is to look for
    results = {}
    try:
        prepare(options)
        if options.data and not os.path.isfile(options.data):
            raise Failure(f"{options.data} is not there: name a text of some MB with --data")
        if options.write_page:
            read_page()
        for part in PARTS:
            if part in options.parts:
                results[part] = PARTS[part][0](options)
        tables = {part: PARTS[part][1](of_part, options) for part, of_part in results.items()}
        save(results, options)
        for lines in tables.values():
            print("\n".join([*lines, ""]))
        print(f"All numbers: {os.path.relpath(options.json)}")
        if options.write_page:
            write_page(tables)
    except Failure as failure:
        print(f"scaling.py: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
