#!/usr/bin/env python3
"""Times saving and loading a checkpoint of a GPT on 2 ranks: here, in PyTorch, and what the disk alone takes.

    PYTHON tests/bench/checkpoint.py [flags]        PYTHON: one that has torch and numpy (tests/bench/README.md)

The state is the same: parameters and both moments of AdamW in f32, of the 124M GPT unless --model says another, sharded
over two processes. The disk's time is that of dd for the very bytes that were saved here. All of it happens in turns,
--rounds times; of each time the smallest counts. Exit code 1 when a program fails, or with --expect when a goal is
missed: saving at 0.8 of the disk's speed, and both directions faster than PyTorch.
"""

import argparse
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time

from page import renew_file
from vs_pytorch import HERE, ROOT, Failure, gpt, load, machine, run_all

MODELS = {"gpt2": gpt(12, 12, 768, 64, 50257), "small": gpt(4, 4, 256, 64, 4096)}
RANKS = 2
GOAL = 0.8  # of the disk's speed, in saving
README = os.path.join(HERE, "README.md")
BEGIN, END = "<!-- checkpoint.py --write-readme: begin -->", "<!-- checkpoint.py: end -->"
DROP_CACHES = "/proc/sys/vm/drop_caches"


def forget_files():
    """Everything to the disk and out of memory, so that what is read comes from the disk. False where that is not ours
    to do: only the whole machine's cache can be dropped, by root."""
    os.sync()
    try:
        with open(DROP_CACHES, "w", encoding="ascii") as file:
            file.write("3\n")
    except OSError:
        return False
    return True


def seconds_of(commands):
    """Runs commands side by side; the time until the last one ends."""
    begin = time.perf_counter()
    processes = [subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.PIPE) for command in commands]
    errors = [process.communicate()[1] for process in processes]
    seconds = time.perf_counter() - begin
    for command, process, error in zip(commands, processes, errors):
        if process.returncode:
            raise Failure(f"{' '.join(command)}: {error.decode(errors='replace')}")
    return seconds


# -- the disk ----------------------------------------------------------------------------------------------------------


def copies(shards, folder):
    """dd of each shard to a new file, with fsync at its end; the shards are in memory, having just been written."""
    return [["dd", f"if={shard}", f"of={os.path.join(folder, f'copy.{i}')}", "bs=4M", "conv=fsync"]
            for i, shard in enumerate(shards)]


def write_disk(shards, folder):
    def seconds(write):
        os.makedirs(folder)
        os.sync()
        try:
            return write(copies(shards, folder))
        finally:
            shutil.rmtree(folder)

    return {"one dd": seconds(lambda commands: sum(seconds_of([command]) for command in commands)),
            "two dd": seconds(seconds_of)}


def read_disk(shards):
    return seconds_of([["dd", f"if={shard}", "of=/dev/null", "bs=4M"] for shard in shards])


# -- here --------------------------------------------------------------------------------------------------------------


def run_trencadis(options, folder, *flags):
    sizes = MODELS[options.model]
    command = ["mpirun", "-np", str(RANKS), "--oversubscribe", "--bind-to", "none", options.trencadis, "-z", "3",
               "--threads", "1", "--batch-size", "1", "--max-steps", "1", "--eval-steps", "0", "--sample-tokens", "0",
               "--progress", "plain", "--report", "off", "--train-data", options.data, "--out-dir", folder, *flags]
    for name, value in sizes.items():
        command += [f"--{name.replace('_', '-')}", str(value)]
    environment = dict(os.environ)
    if os.geteuid() == 0:
        environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    log = os.path.join(options.folder, "log")
    run_all([command], [environment], log)
    with open(log, encoding="utf-8") as file:
        return file.read()


def said(text, pattern):
    found = re.search(pattern, text)
    if not found:
        raise Failure(f"the output of train_gpt has no line like {pattern}:\n{text[-2000:]}")
    return [float(number) for number in found.groups()]


def save_trencadis(options, folder):
    shutil.rmtree(folder, ignore_errors=True)
    text = run_trencadis(options, folder, "--save-interval", "1")
    megabytes, seconds = said(text, r"saved \S+: ([\d.]+) MB in ([\d.]+) s")
    return {"seconds": seconds, "bytes": megabytes * 1e6}


def shards_in(folder):
    step = os.path.join(folder, "step-00000001")
    return sorted(os.path.join(step, name) for name in os.listdir(step) if name.endswith(".safetensors"))


def load_trencadis(options, folder):
    text = run_trencadis(options, folder, "--resume", "auto")
    seconds, check = said(text, r"loaded \S+: [\d.]+ MB in ([\d.]+) s, of which ([\d.]+) s to check")
    return {"seconds": seconds, "check": check}


# -- PyTorch -----------------------------------------------------------------------------------------------------------


def run_pytorch(options, what, folder):
    job = {"what": what, "model": MODELS[options.model], "folder": folder,
           "result": os.path.join(options.folder, "result")}
    path = os.path.join(options.folder, "job.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(job, file)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environments = [dict(os.environ, OMP_NUM_THREADS="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
                         RANK=str(rank), WORLD_SIZE=str(RANKS)) for rank in range(RANKS)]
    run_all([[sys.executable, os.path.join(HERE, "torch_checkpoint.py"), path]] * RANKS, environments,
            os.path.join(options.folder, "log"))
    results = [load(f"{job['result']}.{rank}") for rank in range(RANKS)]
    return results[0] | {"seconds": max(result["seconds"] for result in results)}


def save_pytorch(options, folder):
    shutil.rmtree(folder, ignore_errors=True)
    result = run_pytorch(options, "save", folder)
    result["bytes"] = sum(entry.stat().st_size for entry in os.scandir(folder))
    return result


# -- in turns ----------------------------------------------------------------------------------------------------------


def measure(options, number):
    """One round: {"save": {who: seconds}, "load": {who: seconds}, ...}. The order turns from round to round, for what a
    disk does may depend on what it did before."""
    ours, theirs = (os.path.join(options.folder, name) for name in ("trencadis", "pytorch"))
    round_ = {"save": {}, "load": {}}

    def save_here():
        saved = save_trencadis(options, ours)
        round_["save"]["trencadis"], round_["bytes"] = saved["seconds"], saved["bytes"]
        round_["save"] |= write_disk(shards_in(ours), os.path.join(options.folder, "dd"))

    def save_there():
        saved = save_pytorch(options, theirs)
        round_["save"]["pytorch"], round_["pytorch_bytes"] = saved["seconds"], saved["bytes"]
        round_["version"] = saved["version"]

    def load_disk():
        round_["load"]["two dd"] = read_disk(shards_in(ours))

    def load_here():
        loaded = load_trencadis(options, ours)
        round_["load"]["trencadis"], round_["check"] = loaded["seconds"], loaded["check"]

    def load_there():
        round_["load"]["pytorch"] = run_pytorch(options, "load", theirs)["seconds"]

    for group in ([save_here, save_there], [load_disk, load_here, load_there]):
        turn = number % len(group)
        for work in group[turn:] + group[:turn]:
            round_["cold"] = forget_files()
            work()
    for folder in (ours, theirs):
        shutil.rmtree(folder)
    return round_


def smallest(rounds, what):
    return {who: min(round_[what][who] for round_ in rounds) for who in rounds[0][what]}


HEAD = ["| | MB | one dd, s | two dd, s | PyTorch, s | here, s | here, MB/s | of the disk's speed | of PyTorch's |",
        "| --- |" + " ---: |" * 8]


def table(rounds, model):
    lines = []
    for what in ("save", "load"):
        best = smallest(rounds, what)
        disk = min(seconds for who, seconds in best.items() if who.endswith("dd"))
        megabytes = rounds[0]["bytes"] / 1e6
        cells = [f"{what}, {model}", f"{megabytes:.0f}"]
        cells += [f"{best[who]:.2f}" if who in best else "-" for who in ("one dd", "two dd", "pytorch", "trencadis")]
        cells += [f"{megabytes / best['trencadis']:.0f}", f"**{disk / best['trencadis']:.2f}**",
                  f"**{best['pytorch'] / best['trencadis']:.2f}**"]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def missed_goals(rounds):
    save, read = smallest(rounds, "save"), smallest(rounds, "load")
    missed = []
    if min(save["one dd"], save["two dd"]) / save["trencadis"] < GOAL:
        missed.append(f"saving is below {GOAL} of the disk's speed")
    missed += [f"{what} is slower than PyTorch's" for what, best in (("saving", save), ("loading", read))
               if best["trencadis"] >= best["pytorch"]]
    return missed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, default="gpt2")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", default=os.path.join(ROOT, "out", "bench", "checkpoint"),
                        help="on the disk to be measured; emptied; takes three times the checkpoint's size")
    parser.add_argument("--trencadis", default=os.path.join(ROOT, "build", "release", "bin", "train_gpt"))
    parser.add_argument("--json", default=os.path.join(ROOT, "out", "bench", "checkpoint.json"))
    parser.add_argument("--expect", action="store_true", help="end with 1 where a goal is missed")
    parser.add_argument("--write-readme", action="store_true", help="renew the table in README.md")
    options = parser.parse_args()
    options.trencadis, options.folder = os.path.abspath(options.trencadis), os.path.abspath(options.folder)
    shutil.rmtree(options.folder, ignore_errors=True)
    os.makedirs(options.folder)
    options.data = os.path.join(options.folder, "text.txt")
    with open(options.data, "w", encoding="ascii") as file:
        file.write("the quick brown fox jumps over the lazy dog\n" * 1000)
    rounds = []
    try:
        for number in range(options.rounds):
            rounds.append(measure(options, number))
            print(f"round {number + 1}: " + "; ".join(
                f"{what} " + ", ".join(f"{who} {seconds:.2f} s" for who, seconds in rounds[-1][what].items())
                for what in ("save", "load")), file=sys.stderr, flush=True)
    except Failure as failure:
        print(f"checkpoint.py: {failure}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(options.folder, ignore_errors=True)
    os.makedirs(os.path.dirname(os.path.abspath(options.json)), exist_ok=True)
    with open(options.json, "w", encoding="utf-8") as file:
        json.dump({"machine": machine(), "model": options.model, "rounds": rounds}, file, indent=1)
    about = (f"{machine()['processor']}, {machine()['cores']} cores, PyTorch {rounds[0]['version']}, smallest of "
             f"{len(rounds)} rounds; {'files were dropped from' if rounds[0]['cold'] else 'files may lie in'} "
             f"memory before they were read.")
    lines = [*HEAD, *table(rounds, options.model), "", about]
    print("\n".join(lines))
    if options.write_readme:
        renew_file(README, BEGIN, END, lines)
    missed = missed_goals(rounds)
    for goal in missed:
        print(f"checkpoint.py: {goal}", file=sys.stderr)
    return 1 if missed and options.expect else 0


if __name__ == "__main__":
    sys.exit(main())
