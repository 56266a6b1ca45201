#!/usr/bin/env python3
"""Trains the same GPT with PyTorch and with train_gpt, in turns, and compares speed, memory and losses.

    PYTHON tests/bench/vs_pytorch.py [flags]        PYTHON: one that has torch and numpy (tests/bench/README.md)

Same initial weights, same batches, same AdamW. A table in Markdown goes to stdout, everything measured to a JSON file.
Exit code 1 when losses part by more than 1e-4 anywhere, or a program fails.

Each program runs --rounds times, in turns, so that a slow minute of the machine hits both; what counts of a program is
its fastest step. Peak resident memory is the kernel's, of the largest rank. This script starts programs and reads what
they wrote; it must not import torch, so that nothing of it runs beside what is measured.
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

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
TOLERANCE = 1e-4  # of a loss
SECONDS_LIMIT = 900  # of one program

# What is trained; "batch" counts over all ranks.
WORKS = {
    "tiny": {"model": {"n_layer": 4, "n_head": 4, "n_embd": 128, "block_size": 64, "vocab_size": 256}, "batch": 12},
    "shakespeare-char": {
        "model": {"n_layer": 6, "n_head": 6, "n_embd": 384, "block_size": 256, "vocab_size": 256}, "batch": 8},
}
# How it is spread. "torch" is an entry of MODES in torch_train.py, "flags" is what train_gpt gets.
MODES = {
    "one": {"ranks": 1, "torch": "one", "flags": [], "title": "one process"},
    "ddp": {"ranks": 2, "torch": "ddp", "flags": ["--zero-stage", "0"], "title": "DDP, 2 ranks"},
}
OPTIMIZER = {"lr": 1e-3, "weight_decay": 0.1, "beta1": 0.9, "beta2": 0.95, "grad_clip": 1.0}


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
    return max(load(os.path.join(folder, f"measured.{rank}"))["peak_bytes"] for rank in range(ranks))


def measure_command(folder):
    return [sys.executable, os.path.join(HERE, "measure.py"), os.path.join(folder, "measured")]


def train_pytorch(work, mode, options, folder):
    """{"step_seconds", "losses", "peak_bytes"} of one run."""
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
             "warmup-steps": 0, "min-lr": OPTIMIZER["lr"], "eval-interval": 0, "eval-steps": 0, "sample-interval": 0,
             "sample-tokens": 0, "progress": "plain", "device": "cpu", "out-dir": folder}
    flags |= {name.replace("_", "-"): value for name, value in (work["model"] | OPTIMIZER).items()}
    command = measure_command(folder) + [options.trencadis] + mode["flags"]
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


def compare(work_name, mode_name, options):
    """One row: both programs in turns."""
    work, mode = WORKS[work_name], MODES[mode_name]
    runs = {name: [] for name in options.only}
    for turn in range(options.rounds):
        for name in options.only:
            folder = tempfile.mkdtemp(prefix="vs_pytorch-")
            try:
                runs[name].append(PROGRAMS[name](work, mode, options, folder))
            finally:
                shutil.rmtree(folder, ignore_errors=True)
            print(f"{work_name}, {mode['title']}, round {turn + 1}: {name} "
                  f"{min(runs[name][-1]['step_seconds']) * 1e3:.1f} ms", file=sys.stderr, flush=True)
    tokens = work["batch"] * work["model"]["block_size"]
    row = {"work": work_name, "mode": mode_name, "tokens_per_step": tokens, "runs": runs}
    for name, list_of_runs in runs.items():
        fastest = min(min(run["step_seconds"]) for run in list_of_runs)
        row[name] = {"step_ms": fastest * 1e3, "tokens_per_sec": tokens / fastest,
                     "peak_bytes": max(run["peak_bytes"] for run in list_of_runs), "losses": list_of_runs[0]["losses"]}
    if len(runs) == 2:
        ours, theirs = row["trencadis"], row["pytorch"]
        row["speed_ratio"] = ours["tokens_per_sec"] / theirs["tokens_per_sec"]
        row["memory_ratio"] = ours["peak_bytes"] / theirs["peak_bytes"]
        row["loss_difference"] = max(abs(a - b) for a, b in zip(ours["losses"], theirs["losses"]))
    return row


def table(rows):
    lines = ["| work | PyTorch ms/step | here ms/step | tokens/s, here : PyTorch | PyTorch peak MB | here peak MB "
             "| memory, here : PyTorch | largest difference of a loss |",
             "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"]
    for row in rows:
        def number(program, key, scale, digits):
            return f"{row[program][key] * scale:.{digits}f}" if program in row else "-"

        def ratio(key, form):
            return form.format(row[key]) if key in row else "-"

        lines.append(" | ".join([
            f"| {row['work']}, {MODES[row['mode']]['title']}",
            number("pytorch", "step_ms", 1, 1), number("trencadis", "step_ms", 1, 1), ratio("speed_ratio", "{:.2f}"),
            number("pytorch", "peak_bytes", 1e-6, 0), number("trencadis", "peak_bytes", 1e-6, 0),
            ratio("memory_ratio", "{:.2f}"), ratio("loss_difference", "{:.1e}")]) + " |")
    return "\n".join(lines)


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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", nargs="+", choices=WORKS, default=list(WORKS))
    parser.add_argument("--mode", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--only", nargs="+", choices=PROGRAMS, default=list(PROGRAMS), help="leave a program out")
    parser.add_argument("--rounds", type=int, default=2, help="runs of each program, in turns (2)")
    parser.add_argument("--steps", type=int, default=20, help="steps of each run (20)")
    parser.add_argument("--threads", type=int, default=cores(), help="over all ranks (all cores)")
    parser.add_argument("--seed", type=int, default=1337)
    parser.add_argument("--data", help="a text (the corpus of quickstart.sh)")
    parser.add_argument("--trencadis", default=os.path.join(ROOT, "build", "release", "bin", "train_gpt"))
    parser.add_argument("--json", default=os.path.join(ROOT, "out", "bench", "vs_pytorch.json"))
    options = parser.parse_args()
    rows = []
    try:
        prepare(options)
        for work in options.work:
            for mode in options.mode:
                rows.append(compare(work, mode, options))
    except Failure as failure:
        print(f"vs_pytorch.py: {failure}", file=sys.stderr)
    if not rows:
        return 1
    versions = {run["version"] for row in rows for run in row["runs"].get("pytorch", [])}
    print(table(rows))
    os.makedirs(os.path.dirname(os.path.abspath(options.json)), exist_ok=True)
    with open(options.json, "w", encoding="utf-8") as file:
        json.dump({"machine": machine(), "pytorch": sorted(versions), "steps": options.steps, "rounds": options.rounds,
                   "threads": options.threads, "optimizer": OPTIMIZER, "rows": rows}, file, indent=1)
    print(f"\n{machine()['processor']}, {options.threads} threads, PyTorch {', '.join(sorted(versions)) or '-'}; "
          f"fastest of {options.rounds * options.steps} steps. All numbers: {os.path.relpath(options.json)}")
    if any(row.get("loss_difference", 0) > TOLERANCE for row in rows):
        print(f"vs_pytorch.py: losses differ by more than {TOLERANCE}", file=sys.stderr)
        return 1
    return 0 if len(rows) == len(options.work) * len(options.mode) else 1


if __name__ == "__main__":
    sys.exit(main())
