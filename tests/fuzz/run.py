#!/usr/bin/env python3
"""Builds the fuzz targets of this folder with clang++ and runs them: libFuzzer, with AddressSanitizer and
UndefinedBehaviorSanitizer.

    run.py [--runs N] [NAME...]           a short run that repeats itself: the seeds, then N inputs made from them
    run.py --seconds S [NAME...]          a long one; what it finds interesting stays in BUILD/corpus/NAME
    run.py --input FILE NAME              one input: to see a failure again
    run.py --list

    --build DIR    where to build [build/fuzz]
    --clang NAME   the compiler [clang++]

Exit code 0: nothing found; 1: a failure, or the build broke; 77: skipped, there is no clang++ with libFuzzer.
"""

import argparse
import concurrent.futures
import os
import shlex
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))

# name -> (sources beside fuzz_NAME.cpp, longest input, runs of the short run)
TARGETS = {
    "safetensors": (["zero/checkpoint/safetensors.cpp", "zero/checkpoint/safetensors_header.cpp", "runtime/crc32c.cpp"],
                    600, 30000),
    "index": (["zero/checkpoint/index.cpp", "zero/flat_unit.cpp", "runtime/tensor.cpp", "runtime/storage.cpp",
               "runtime/memory_tracker.cpp", "runtime/context.cpp", "runtime/trace.cpp", "runtime/crc32c.cpp"], 1500, 10000),
    "token_file": (["models/data/token_files.cpp"], 1100, 8000),
    "config": ([f"models/options/{name}.cpp" for name in ("config_file", "flags", "train_flags", "train_options")], 400, 6000),
}
FLAGS = ["-std=c++20", "-O1", "-g1", f"-I{ROOT}", "-DFMT_SHARED", '-DTRENCADIS_VERSION="fuzz"', "-Wall", "-Wextra",
         "-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer",
         "-fno-sanitize=null,vptr,object-size"]  # costly to compile, and found by AddressSanitizer as well
LIMITS = ["-timeout=10", "-rss_limit_mb=1500", "-print_final_stats=0"]


def missing_of(clang):
    """None, or what is missing."""
    if not shutil.which(clang):
        return f"{clang} is not here"
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "empty.cpp")
        with open(source, "w", encoding="utf-8") as file:
            file.write("#include <cstddef>\nextern \"C\" int LLVMFuzzerTestOneInput(const unsigned char*, size_t) "
                       "{ return 0; }\n")
        result = subprocess.run([clang, "-fsanitize=fuzzer,address,undefined", source, "-o", source + ".out"],
                                capture_output=True, check=False)
    return f"{clang} has no libFuzzer (Debian: libclang-rt-dev)" if result.returncode else None


def up_to_date(target, depends):
    """Whether `target` is newer than all files that the compiler said it read."""
    try:
        with open(depends, encoding="utf-8") as file:
            files = shlex.split(file.read().replace("\\\n", " "))[1:]
        made = os.path.getmtime(target)
        return all(os.path.getmtime(path) < made for path in files)
    except OSError:
        return False


def compile_source(clang, folder, source):
    target = os.path.join(folder, source.replace("/", "_") + ".o")
    if not up_to_date(target, target + ".d"):
        launcher = ["ccache"] if shutil.which("ccache") else []
        subprocess.run([*launcher, clang, *FLAGS, "-MMD", "-MF", target + ".d", "-c", os.path.join(ROOT, source),
                        "-o", target], check=True)
    return target


def build(clang, folder, names):
    """Paths of the programs, by name."""
    os.makedirs(folder, exist_ok=True)
    sources = {name: [f"tests/fuzz/fuzz_{name}.cpp", *TARGETS[name][0], "runtime/check.cpp"] for name in names}
    every = sorted({source for list_ in sources.values() for source in list_})
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        objects = dict(zip(every, pool.map(lambda source: compile_source(clang, folder, source), every)))
    programs = {}
    for name in names:
        programs[name] = os.path.join(folder, f"fuzz_{name}")
        subprocess.run([clang, *FLAGS, *(objects[source] for source in sources[name]), "-lfmt", "-o", programs[name]], check=True)
    return programs


def fuzz(program, name, folder, arguments):
    """Runs one target; returns whether it found nothing."""
    seeds, dictionary = os.path.join(HERE, "seeds", name), os.path.join(HERE, "seeds", f"{name}.dict")
    command = [program, *LIMITS, f"-max_len={TARGETS[name][1]}", f"-artifact_prefix={folder}/{name}-"]
    if os.path.exists(dictionary):
        command.append(f"-dict={dictionary}")
    with tempfile.TemporaryDirectory() as scratch:  # what a target that is stopped leaves behind goes with it
        if arguments.input:
            command = [program, *LIMITS, arguments.input]
        elif arguments.seconds:
            corpus = os.path.join(folder, "corpus", name)
            os.makedirs(corpus, exist_ok=True)
            command += [f"-max_total_time={arguments.seconds}", corpus, seeds]
        else:
            corpus = os.path.join(scratch, "corpus")
            os.makedirs(corpus)
            # All of libFuzzer's choices follow from its seed: a failure comes again.
            command += [f"-runs={arguments.runs or TARGETS[name][2]}", "-seed=1", "-verbosity=0", corpus, seeds]
        environment = {"UBSAN_OPTIONS": "print_stacktrace=1", **os.environ, "TMPDIR": scratch}
        quiet = not arguments.input and not arguments.seconds
        result = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, check=False, text=True,
                                errors="replace", stdout=subprocess.PIPE if quiet else None,
                                stderr=subprocess.STDOUT if quiet else None)
    if result.returncode == 0:
        print(f"{name}: nothing found", flush=True)
        return True
    print(result.stdout or "", flush=True)
    print(f"{name}: FAILED (exit code {result.returncode}). The input, if any, is {folder}/{name}-*; to see it again:\n"
          f"  tests/fuzz/run.py --input FILE {name}", flush=True)
    return False


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     usage="run.py [--runs N | --seconds S | --input FILE] [NAME...]")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(TARGETS))
    parser.add_argument("--runs", type=int)
    parser.add_argument("--seconds", type=int)
    parser.add_argument("--input", metavar="FILE")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--build", default=os.path.join(ROOT, "build", "fuzz"), metavar="DIR")
    parser.add_argument("--clang", default="clang++", metavar="NAME")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(TARGETS))
        return 0
    names = arguments.names or list(TARGETS)
    for name in names:
        if name not in TARGETS:
            parser.error(f"there is no target '{name}': {', '.join(TARGETS)}")
    if arguments.input and len(arguments.names) != 1:
        parser.error("--input needs the one target that it is for")
    missing = missing_of(arguments.clang)
    if missing:
        print(f"run.py: skipped: {missing}")
        return 77
    try:
        programs = build(arguments.clang, os.path.abspath(arguments.build), names)
    except subprocess.CalledProcessError as error:
        print(f"run.py: the build broke: {shlex.join(error.cmd)}")
        return 1
    good = [fuzz(programs[name], name, os.path.abspath(arguments.build), arguments) for name in names]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
