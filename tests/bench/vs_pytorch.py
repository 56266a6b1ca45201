#!/usr/bin/env python3
"""Trains the same GPT with PyTorch and with train_gpt, in turns, and compares speed, memory and losses.

    PYTHON tests/bench/vs_pytorch.py [flags]        PYTHON: one that has torch and numpy (tests/bench/README.md)

Same initial weights, same batches, same AdamW. A table in Markdown goes to stdout (--write-readme: into README.md
beside this script too), everything measured to a JSON file. Exit code 1 when losses part by more than 1e-4 anywhere, or
a program fails.

Each program runs --rounds times, in turns with all others of its work, so that a slow minute of the machine hits every
one; what counts of a program is its fastest step. Peak resident memory is the kernel's, of the largest rank. This
script starts programs and reads what they wrote; it must not import torch, so that nothing of it runs beside what is
measured.
"""

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

from page import between, renew_file

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
TOLERANCE = 1e-4  # of a loss
SECONDS_LIMIT = 900  # of one program

README = os.path.join(HERE, "README.md")
BEGIN, END = "<!-- vs_pytorch.py --write-readme: begin -->", "<!-- end -->"


def gpt(n_layer, n_head, n_embd, block_size, vocab_size):
    return {"n_layer": n_layer, "n_head": n_head, "n_embd": n_embd, "block_size": block_size, "vocab_size": vocab_size}


# What is trained; "batch" counts over all ranks. gpt2 has 124 million parameters and runs only where it is asked for.
WORKS = {
    "tiny": {"model": gpt(4, 4, 128, 64, 256), "batch": 12},
    "shakespeare-char": {"model": gpt(6, 6, 384, 256, 256), "batch": 8},
    "gpt2": {"model": gpt(12, 12, 768, 64, 50257), "batch": 4},
}
# How it is spread: a mode is a row of the table. "torch" is an entry of MODES in torch_train.py, "flags" is what
# train_gpt gets. Modes that share one of them share its runs.
MODES = {
    "one": {"ranks": 1, "torch": "one", "title": "eager", "flags": "-z 0"},
    "compiled": {"ranks": 1, "torch": "compiled", "title": "compiled", "flags": "-z 0"},
    "ddp": {"ranks": 2, "torch": "ddp", "title": "DDP", "flags": "-z 0"},
    "zero1": {"ranks": 2, "torch": "zero1", "title": "ZeroRedundancyOptimizer", "flags": "-z 1"},
    "zero2": {"ranks": 2, "torch": "fsdp2-keep", "title": "FSDP2, no reshard", "flags": "-z 2"},
    "zero3-keep": {"ranks": 2, "torch": "fsdp2-keep", "title": "FSDP2, no reshard",
                   "flags": "-z 3 --reshard-after-forward off"},
    "zero3": {"ranks": 2, "torch": "fsdp2", "title": "FSDP2", "flags": "-z 3"},
}
# lr rises over the whole run, as in the first 20 steps of nanoGPT's schedule for these models. At 1e-3 from the start
# some batches meet gradient norms of 300, which make 1e-4 of a loss out of rounding: PyTorch in f32 then leaves PyTorch
# in f64 by as much.
OPTIMIZER = {"lr": 2e-4, "weight_decay": 0.1, "beta1": 0.9, "beta2": 0.95, "grad_clip": 1.0}


class Failure(Exception):
    pass


def cores():
    return len(os.sched_getaffinity(0))


def run_all(commands, environments, log):
    """Runs commands side by side and waits; all are ended if one fails or the time is over."""
    with open(log, "w", encoding="utf-8") as output:
        processes = [subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                      start_new_session=True)
                     for command, environment in zip(commands, environments)]
        try:
            codes = [process.wait(SECONDS_LIMIT) for process in processes]
        except BaseException as error:
            for process in processes:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            codes = [f"no end after {SECONDS_LIMIT} s"]
    if any(codes):
        with open(log, encoding="utf-8", errors="replace") as output:
            tail = output.read()[-3000:]
        raise Failure(f"{' '.join(commands[0])}\nended with {codes}:\n{tail}")


def load(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def measured(folder, ranks):
    return [load(os.path.join(folder, f"measured.{rank}"))["peak_bytes"] for rank in range(ranks)]


def measure_command(folder):
    return [sys.executable, os.path.join(HERE, "measure.py"), os.path.join(folder, "measured")]


def train_pytorch(work, mode, options, folder):
    """{"step_seconds", "losses", "peak_bytes" of each rank} of one run."""
    ranks = mode["ranks"]
    job = {"model": work["model"], "batch_size": work["batch"] // ranks, "mode": mode["torch"],
           "threads": max(1, options.threads // ranks), "steps": options.steps, "seed": options.seed,
           "data": options.data, "result": os.path.join(folder, "result"), **OPTIMIZER}
    path = os.path.join(folder, "job.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(job, file)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environments = []
    for rank in range(ranks):
        environment = dict(os.environ, OMP_NUM_THREADS=str(job["threads"]), MASTER_ADDR="127.0.0.1",
                           MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(ranks))
        for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):  # meant for older builds than NumPy's
            environment.pop(name, None)
        environments.append(environment)
    command = measure_command(folder) + [sys.executable, os.path.join(HERE, "torch_train.py"), path]
    run_all([command] * ranks, environments, os.path.join(folder, "log"))

    results = [load(f"{job['result']}.{rank}") for rank in range(ranks)]
    # Ranks have equally many targets, so the loss of the whole batch is the mean. A step ends when its last rank does.
    return {"step_seconds": [max(times) for times in zip(*(r["step_seconds"] for r in results))],
            "losses": [sum(parts) / ranks for parts in zip(*(r["losses"] for r in results))],
            "peak_bytes": measured(folder, ranks), "version": results[0]["version"]}


def train_trencadis(work, mode, options, folder):
    ranks = mode["ranks"]
    flags = {"max-steps": options.steps, "batch-size": work["batch"] // ranks, "seed": options.seed,
             "threads": max(1, options.threads // ranks), "train-data": options.data, "lr-schedule": "constant",
             "warmup-steps": options.steps, "min-lr": OPTIMIZER["lr"], "eval-interval": 0, "eval-steps": 0,
             "sample-interval": 0, "sample-tokens": 0, "save-interval": "off", "progress": "plain", "device": "cpu", "out-dir": folder}
    flags |= {name.replace("_", "-"): value for name, value in (work["model"] | OPTIMIZER).items()}
    command = measure_command(folder) + [options.trencadis] + mode["flags"].split()
    for name, value in flags.items():
        command += [f"--{name}", str(value)]
    if ranks > 1:
        command = ["mpirun", "-np", str(ranks), "--oversubscribe", "--bind-to", "none"] + command
    environment = dict(os.environ)
    if os.geteuid() == 0:
        environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    run_all([command], [environment], os.path.join(folder, "log"))

    steps = []
    with open(os.path.join(folder, "metrics.jsonl"), encoding="utf-8") as file:
        for line in file:
            entry = json.loads(line)
            if "train/loss" in entry and "step_ms" in entry:
                steps.append(entry)
    if len(steps) != options.steps:
        raise Failure(f"{folder}/metrics.jsonl holds {len(steps)} steps, not {options.steps}")
    return {"step_seconds": [entry["step_ms"] / 1e3 for entry in steps],
            "losses": [entry["train/loss"] for entry in steps], "peak_bytes": measured(folder, ranks)}


PROGRAMS = {"pytorch": train_pytorch, "trencadis": train_trencadis}
VARIANT = {"pytorch": "torch", "trencadis": "flags"}  # the key of a mode that says which of a program's runs it needs


def run_in_turns(work_name, options):
    """{(program, variant): its runs}, of all modes that are asked for."""
    runs = {(program, (mode["ranks"], mode[VARIANT[program]])): []
            for mode in map(MODES.get, options.mode) for program in options.only}
    for turn in range(options.rounds):
        for (program, variant), done in runs.items():
            mode = next(mode for mode in MODES.values() if (mode["ranks"], mode[VARIANT[program]]) == variant)
            folder = tempfile.mkdtemp(prefix="vs_pytorch-")
            try:
                done.append(PROGRAMS[program](WORKS[work_name], mode, options, folder))
            finally:
                shutil.rmtree(folder, ignore_errors=True)
            print(f"{work_name}, round {turn + 1}: {program} {variant[1]} "
                  f"{min(done[-1]['step_seconds']) * 1e3:.1f} ms", file=sys.stderr, flush=True)
    return runs


def compare(work_name, options):
    """The rows of one work, a mode each."""
    runs = run_in_turns(work_name, options)
    tokens = WORKS[work_name]["batch"] * WORKS[work_name]["model"]["block_size"]
    rows = []
    for mode_name in options.mode:
        mode = MODES[mode_name]
        row = {"work": work_name, "mode": mode_name, "tokens_per_step": tokens}
        for program in options.only:
            of_mode = runs[program, (mode["ranks"], mode[VARIANT[program]])]
            fastest = min(min(run["step_seconds"]) for run in of_mode)
            row[program] = {"step_ms": fastest * 1e3, "tokens_per_sec": tokens / fastest,
                            "peak_bytes": max(max(run["peak_bytes"]) for run in of_mode),
                            "losses": of_mode[0]["losses"], "runs": of_mode}
        if len(options.only) == len(PROGRAMS):
            ours, theirs = row["trencadis"], row["pytorch"]
            row["speed_ratio"] = ours["tokens_per_sec"] / theirs["tokens_per_sec"]
            row["memory_ratio"] = ours["peak_bytes"] / theirs["peak_bytes"]
            row["loss_difference"] = max(abs(a - b) for run in ours["runs"]
                                         for a, b in zip(run["losses"], theirs["losses"]))
        rows.append(row)
    return rows


HEAD = ["| work | PyTorch | here | ms a step, PyTorch | here | tokens/s, PyTorch | here | ratio "
        "| peak MB of a rank, PyTorch | here | ratio | losses differ by |", "| --- | --- | --- |" + " ---: |" * 9]


def title(work_name, mode_name):
    """The first cells of a row: which one it is."""
    mode = MODES[mode_name]
    ranks = "one process" if mode["ranks"] == 1 else f"{mode['ranks']} ranks"
    return f"| {work_name}, {ranks} | {mode['title']} | `{mode['flags']}` | "


def table_line(row):
    def number(program, key, scale, form):
        return form.format(row[program][key] * scale) if program in row else "-"

    def ratio(key, form):
        return form.format(row[key]) if key in row else "-"

    return title(row["work"], row["mode"]) + " | ".join([
        number("pytorch", "step_ms", 1, "{:.1f}"), number("trencadis", "step_ms", 1, "{:.1f}"),
        number("pytorch", "tokens_per_sec", 1, "{:.0f}"), number("trencadis", "tokens_per_sec", 1, "{:.0f}"),
        ratio("speed_ratio", "**{:.2f}**"),
        number("pytorch", "peak_bytes", 1e-6, "{:.0f}"), number("trencadis", "peak_bytes", 1e-6, "{:.0f}"),
        ratio("memory_ratio", "**{:.2f}**"), ratio("loss_difference", "{:.1e}")]) + " |"


def about_work(work_name, rows, versions, options):
    text = (f"- {work_name}: {machine()['processor']}, {options.threads} threads in all, PyTorch "
            f"{', '.join(versions) or '-'}; fastest of {options.rounds} x {options.steps} steps.")
    speed = {row["mode"]: row["trencadis"]["tokens_per_sec"]
             for row in rows if row["work"] == work_name and "trencadis" in row}
    if "ddp" in speed and "zero3" in speed:
        text += f" `-z 3` reaches {speed['zero3'] / speed['ddp']:.2f} of the tokens/s of `-z 0`."
    return text


def write_readme(lines, about):
    """Puts lines of the table, and what was run for them, into README.md between its marks: in the place of the same
    rows, beside the others."""
    with open(README, encoding="utf-8") as file:
        known = lines + about + between(file.read(), BEGIN, END)[1]

    def latest(prefixes):
        return [line for prefix in prefixes for line in [line for line in known if line.startswith(prefix)][:1]]

    table = latest(title(work, mode) for work in WORKS for mode in MODES)
    notes = latest(f"- {work}: " for work in WORKS)
    renew_file(README, BEGIN, END, [*HEAD, *table, "", *notes])


def prepare(options):
    """Finds the trainer and the data; fills in what other functions need."""
    options.trencadis = os.path.abspath(options.trencadis)
    if "trencadis" in options.only and not os.access(options.trencadis, os.X_OK):
        raise Failure(f"{options.trencadis} is not there: build it (./quickstart.sh) or give --trencadis")
    if options.data is None:
        options.data = os.path.join(ROOT, "data", "shakespeare.txt")
        if subprocess.run([sys.executable, os.path.join(ROOT, "third_party", "corpus.py")], check=False).returncode:
            raise Failure("without a network, name a text of some MB with --data")
    options.data = os.path.abspath(options.data)


def machine():
    name = "unknown"
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            name = next((line.split(":")[1].strip() for line in file if line.startswith("model name")), name)
    except OSError:
        pass
    return {"processor": name, "cores": cores()}


def save(rows, versions, options):
    os.makedirs(os.path.dirname(os.path.abspath(options.json)), exist_ok=True)
    with open(options.json, "w", encoding="utf-8") as file:
        json.dump({"machine": machine(), "pytorch": versions, "steps": options.steps, "rounds": options.rounds,
                   "threads": options.threads, "optimizer": OPTIMIZER, "rows": rows}, file, indent=1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", nargs="+", choices=WORKS, default=["tiny", "shakespeare-char"])
    parser.add_argument("--mode", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--only", nargs="+", choices=PROGRAMS, default=list(PROGRAMS), help="leave a program out")
    parser.add_argument("--rounds", type=int, default=2, help="runs of each program, in turns (2)")
    parser.add_argument("--steps", type=int, default=20, help="steps of each run (20)")
    parser.add_argument("--threads", type=int, default=cores(), help="over all ranks (all cores)")
    parser.add_argument("--seed", type=int, default=1337)
    parser.add_argument("--data", help="a text (the corpus of quickstart.sh)")
    parser.add_argument("--trencadis", default=os.path.join(ROOT, "build", "release", "bin", "train_gpt"))
    parser.add_argument("--json", default=os.path.join(ROOT, "out", "bench", "vs_pytorch.json"))
    parser.add_argument("--write-readme", action="store_true", help="renew these rows of the table in README.md")
    options = parser.parse_args()
    if options.write_readme and len(options.only) < len(PROGRAMS):
        parser.error("--write-readme is for comparisons: leave --only away")
    rows, failed = [], False
    try:
        prepare(options)
        for work in options.work:
            rows += compare(work, options)
    except Failure as failure:
        print(f"vs_pytorch.py: {failure}", file=sys.stderr)
        failed = True
    if not rows:
        return 1
    versions = sorted({run["version"] for row in rows if "pytorch" in row for run in row["pytorch"]["runs"]})
    save(rows, versions, options)
    lines = [table_line(row) for row in rows]
    about = [about_work(work, rows, versions, options) for work in options.work]
    print("\n".join([*HEAD, *lines, "", *about, f"All numbers: {os.path.relpath(options.json)}"]))
    if any(row.get("loss_difference", 0) > TOLERANCE for row in rows):
        print(f"vs_pytorch.py: losses differ by more than {TOLERANCE}", file=sys.stderr)
        failed = True
    if options.write_readme and not failed:
        write_readme(lines, about)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
