#!/usr/bin/env python3
"""What each trick of the CPU backend buys: undoes one at a time in a copy of the sources, and times a training step.

    python3 tests/bench/tricks.py [flags]        list: python3 tests/bench/tricks.py --list

Builds train_gpt once per trick, in build/tricks (a minute for the first, then some seconds each), and runs all of them
in turns; what counts of each is its fastest step. A table in Markdown goes to stdout, with --write-page also into
tricks.md beside this script. Exit code 1 when a trick no longer applies, a build fails or a program does.
"""

import argparse
import os
import shutil
import sys
import tempfile

from page import renew_file
from vs_pytorch import HERE, ROOT, WORKS, Failure, cores, machine, prepare, run_all, train_trencadis

PAGE = os.path.join(HERE, "tricks.md")
BEGIN, END = "<!-- tricks.py --write-page: begin -->", "<!-- tricks.py: end -->"
FOLDER = os.path.join(ROOT, "build", "tricks")
SOURCES = ["runtime", "autograd", "layers", "optim", "dist", "zero", "models", "third_party", "tests", "CMakeLists.txt",
           "CMakePresets.json"]

# name: what is undone; "file", and "old" which stands there once and becomes "new"; or "flags" for CMake.
TRICKS = {
    "huge pages": {
        "undone": "the arena's memory comes in pages of 4 KiB",
        "file": "runtime/cpu/arena.cpp",
        "old": "  madvise(base_, static_cast<size_t>(reserved_), MADV_HUGEPAGE);\n", "new": ""},
    "memory stays": {
        "undone": "large blocks that are freed go back to the system, as malloc's do",
        "file": "runtime/cpu/arena.cpp",
        "old": "  poison(data, bytes);\n  give_block",
        "new": "  poison(data, bytes);\n"
               "  if (bytes >= 128 * 1024) {\n"
               "    char* page = base_ + (offset + misalign_ + 4095) / 4096 * 4096;\n"
               "    char* end = base_ + (offset + misalign_ + bytes) / 4096 * 4096;\n"
               "    madvise(page, static_cast<size_t>(end - page), MADV_DONTNEED);\n"
               "  }\n"
               "  give_block"},
    "asking early": {
        "undone": "a product waits for memory where the processor does not foresee what it will read or write",
        "file": "runtime/cpu/product.cpp",
        "old": "namespace trencadis {\n\nnamespace {\n",
        "new": "#define __builtin_prefetch(at, ...) ((void)(at))\nnamespace trencadis {\n\nnamespace {\n"},
    "large groups": {
        "undone": "a thread packs an eighth as much for itself, and reads what is shared eight times as often",
        "file": "runtime/cpu/product.cpp",
        "old": "kGroupFloats = 1 << 17;", "new": "kGroupFloats = 1 << 14;"},
    "passes ask ahead": {
        "undone": "GELU and the gradient's norm wait for memory that the processor does not foresee",
        "file": "runtime/cpu/vec.h",
        "old": "void ask_ahead(const float* p) { __builtin_prefetch(p + kAhead); }\n"
               "[[gnu::always_inline]] inline void ask_ahead_to_write(const float* p) { __builtin_prefetch(p + kAhead, 1); }",
        "new": "void ask_ahead(const float*) {}\n"
               "[[gnu::always_inline]] inline void ask_ahead_to_write(const float*) {}"},
    "threads look before they sleep": {
        "undone": "a thread of the pool sleeps as soon as it finds no work",
        "file": "runtime/thread_pool.cpp",
        "old": "spins_ = kSpins;", "new": "spins_ = 0;"},
    "sixteen lanes of exp": {
        "undone": "`exp` of softmax, loss and GELU is libm's, a call for each element",
        "file": "runtime/cpu/vec.h",
        "old": "[[gnu::always_inline]] inline F32 exp(F32 x) {\n",
        "new": "[[gnu::always_inline]] inline F32 exp(F32 x) {\n"
               "  float each[kLanes];\n"
               "  store(each, x);\n"
               "  for (float& e : each) e = std::exp(e);\n"
               "  return load(each);\n"},
    "this machine's vectors": {
        "undone": "compiled for x86-64-v3, without AVX-512: half the lanes, half the registers",
        "flags": ["-DTRENCADIS_NATIVE=OFF"]},
}


def build(name, trick, source):
    """Builds train_gpt without the trick; the path of the program."""
    program = os.path.join(FOLDER, "bin", "train_gpt-" + name.replace(" ", "_").replace("'", ""))
    path = os.path.join(source, trick["file"]) if "file" in trick else None
    if path:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        if text.count(trick["old"]) != 1:
            raise Failure(f"'{name}': what it replaces stands {text.count(trick['old'])} times in {trick['file']}, not "
                          "once: the code has changed, look at the trick again")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text.replace(trick["old"], trick["new"]))
    folder = os.path.join(FOLDER, "build" if "flags" not in trick else "build_" + os.path.basename(program))
    log = os.path.join(FOLDER, "log")
    print(f"building without {name}" if trick else "building", file=sys.stderr, flush=True)
    try:
        for command in (["cmake", "-S", source, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                         "-DBUILD_TESTING=OFF", "-DTRENCADIS_CUDA=OFF", *trick.get("flags", [])],
                        ["cmake", "--build", folder, "--target", "trencadis", "-j", str(cores())]):
            run_all([command], [os.environ], log)
    finally:
        if path:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
    os.makedirs(os.path.dirname(program), exist_ok=True)
    shutil.copy2(os.path.join(folder, "bin", "train_gpt"), program)
    return program


def copy_sources():
    source = os.path.join(FOLDER, "source")
    shutil.rmtree(source, ignore_errors=True)
    os.makedirs(source)
    for name in SOURCES:
        path = os.path.join(ROOT, name)
        # With the time of the copy, so that what an earlier run built of changed files is built again.
        if os.path.isdir(path):
            shutil.copytree(path, os.path.join(source, name), copy_function=shutil.copyfile)
        else:
            shutil.copyfile(path, os.path.join(source, name))
    return source


def measure(programs, options):
    """{(work, name): the fastest step in ms}."""
    fastest = {}
    for work in options.work:
        for turn in range(options.rounds):
            for name, program in programs.items():
                options.trencadis = program
                folder = tempfile.mkdtemp(prefix="tricks-")
                try:
                    steps = train_trencadis(WORKS[work], {"ranks": 1, "flags": "-z 0"}, options, folder)["step_seconds"]
                finally:
                    shutil.rmtree(folder, ignore_errors=True)
                least = min(steps) * 1e3
                fastest[work, name] = min(least, fastest.get((work, name), least))
                print(f"{work}, round {turn + 1}: {name} {least:.1f} ms", file=sys.stderr, flush=True)
    return fastest


def table(fastest, names, options):
    lines = ["| without | what then happens |" + "".join(f" {work}: ms a step | times |" for work in options.work),
             "| --- | --- |" + " ---: | ---: |" * len(options.work)]
    for name in ["nothing", *names]:
        line = f"| {name} | {TRICKS[name]['undone'] if name in TRICKS else 'all tricks are in place'} |"
        for work in options.work:
            ms = fastest[work, name]
            line += f" {ms:.1f} | **{ms / fastest[work, 'nothing']:.2f}** |"
        lines.append(line)
    about = (f"{machine()['processor']}, {options.threads} threads, one process; fastest of {options.rounds} x "
             f"{options.steps} steps, all in turns.")
    return [*lines, "", about]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="name the tricks and end")
    parser.add_argument("--tricks", nargs="+", choices=TRICKS, default=list(TRICKS), metavar="NAME", help="only these")
    parser.add_argument("--work", nargs="+", choices=WORKS, default=["tiny", "shakespeare-char"])
    parser.add_argument("--rounds", type=int, default=2, help="runs of each program, in turns (2)")
    parser.add_argument("--steps", type=int, default=12, help="steps of each run (12)")
    parser.add_argument("--threads", type=int, default=cores(), help="of the process (all cores)")
    parser.add_argument("--seed", type=int, default=1337)
    parser.add_argument("--data", help="a text (the corpus of quickstart.sh)")
    parser.add_argument("--write-page", action="store_true", help="renew the table in tricks.md")
    options = parser.parse_args()
    if options.list:
        for name, trick in TRICKS.items():
            print(f"{name:32} without it, {trick['undone']}")
        return 0
    options.only, options.trencadis = [], ""  # prepare() is to look for the data alone
    try:
        prepare(options)
        source = copy_sources()
        programs = {"nothing": build("nothing", {}, source)}
        programs |= {name: build(name, TRICKS[name], source) for name in options.tricks}
        lines = table(measure(programs, options), options.tricks, options)
    except Failure as failure:
        print(f"tricks.py: {failure}", file=sys.stderr)
        return 1
    print("\n".join(lines))
    if options.write_page:
        renew_file(PAGE, BEGIN, END, lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
