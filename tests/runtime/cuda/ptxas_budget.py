#!/usr/bin/env python3
"""Proves, without a GPU, what a compiler can prove about the CUDA kernels: that they fit the hardware.

    ptxas_budget.py ROOT [--built DIR] [--cache DIR] [-- FLAGS...]   every runtime/cuda/**/*.cu, for sm_80 and sm_90
    ptxas_budget.py --self-test [--nvcc NVCC]                        plants kernels that break each rule
    ptxas_budget.py --record COMMAND...                              runs nvcc, with -Xptxas=-v, for a build

Rules, for every kernel (__global__ function):
  local memory      none: no stack frame and no spilled registers. An array that is indexed by a variable, or a register
                    too many, would go to memory 100 times as far away, and nothing but speed would tell
  launch bounds     given, so that ptxas may use as many registers as a block of that size leaves, and no more
  registers         a block fits into the 65536 of a multiprocessor: a launch cannot fail for want of them
  shared memory     at most 48 KiB of static arrays (more has to be dynamic, with an opt-in by the host)

Exit code 0: all hold; 1: some do not; 77 (ctest: skipped): no nvcc.

A file that the build has compiled with --record, for these architectures, is not compiled again: what ptxas said lies in
OBJECT.ptxas, and the launch bounds stand in the PTX that the object holds (--no-compress). Others are compiled; with
--cache DIR only when they, a header under runtime/ or the flags changed.
"""

import argparse
import concurrent.futures
import glob
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

ARCHITECTURES = (80, 90)
REGISTERS = 65536  # of a multiprocessor
REGISTER_UNIT = 8  # a thread's registers are allocated in units of
WARP = 32
STATIC_SHARED = 48 * 1024


def up(n, unit):
    return (n + unit - 1) // unit * unit


def parse_launch_bounds(ptx):
    """{mangled kernel: threads of the largest block, or None} from the text of a .ptx file."""
    bounds = {}
    for entry in re.finditer(r"\.entry\s+(\w+)\s*\(.*?\)(.*?)\{", ptx, re.S):
        limit = re.search(r"\.maxntid\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?", entry[2])
        bounds[entry[1]] = int(limit[1]) * int(limit[2] or 1) * int(limit[3] or 1) if limit else None
    return bounds


def parse_usage(log):
    """[{kernel, arch, stack, spilled, registers, shared}] from what `ptxas -v` says."""
    kernels = []
    for line in log.splitlines():
        if m := re.search(r"Compiling entry function '(\w+)' for 'sm_(\d+)", line):
            kernels.append({"kernel": m[1], "arch": int(m[2]), "stack": 0, "spilled": 0, "registers": 0, "shared": 0})
        elif m := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line):
            # A device function that was not inlined is listed too; what it needs counts for the kernel above it.
            if kernels:
                kernels[-1]["stack"] = max(kernels[-1]["stack"], int(m[1]))
                kernels[-1]["spilled"] += int(m[2]) + int(m[3])
        elif m := re.search(r"Used (\d+) registers", line):
            kernels[-1]["registers"] = int(m[1])
            if shared := re.search(r"(\d+) bytes smem", line):
                kernels[-1]["shared"] = int(shared[1])
    return kernels


def compile_file(nvcc, source, flags):
    """The usage of every kernel of a file, with its launch bounds, for all architectures."""
    with tempfile.TemporaryDirectory() as folder:
        command = [nvcc, "-std=c++20", "-x", "cu", "-fatbin", "-o", os.path.join(folder, "kernels.fatbin"), "-Xptxas",
                   "-v", "--keep", "--keep-dir", folder, *flags]
        for arch in ARCHITECTURES:
            command += ["-gencode", f"arch=compute_{arch},code=sm_{arch}"]
        run = subprocess.run(command + [source], capture_output=True, text=True)
        if run.returncode:
            raise RuntimeError(f"{source}: nvcc failed\n{run.stderr[-3000:]}")
        bounds = {}
        for name in glob.glob(os.path.join(folder, "*.ptx")):
            with open(name, encoding="utf-8", errors="replace") as file:
                bounds.update(parse_launch_bounds(file.read()))
        kernels = parse_usage(run.stderr + run.stdout)
        for kernel in kernels:
            kernel["threads"] = bounds.get(kernel["kernel"])
        return kernels


def record(command):
    """Runs a build's nvcc; what ptxas says of kernels goes into OBJECT.ptxas, the rest to where it would have gone."""
    log = command[command.index("-o") + 1] + ".ptxas" if "-o" in command else None
    if log and os.path.exists(log):
        os.remove(log)
    run = subprocess.run(command, stderr=subprocess.PIPE, text=True, errors="replace")
    told, other = [], []
    for line in run.stderr.splitlines(keepends=True):
        of_ptxas = line.startswith("ptxas info") or re.match(r"    \d+ bytes stack frame", line)
        (told if of_ptxas else other).append(line)
    sys.stderr.write("".join(other))
    if log and run.returncode == 0:
        with open(log, "w", encoding="utf-8") as file:
            file.write("".join(told))
    return run.returncode


def recorded(built, name, newest):
    """compile_file's answer from what the build recorded in the folder of its objects; None where that is not all there,
    or older than `newest`."""
    paths = [os.path.join(built, name + suffix) for suffix in (".o", ".o.ptxas")]
    if not all(os.path.exists(path) and os.path.getmtime(path) >= newest for path in paths):
        return None
    with open(paths[0], "rb") as file:
        bounds = parse_launch_bounds(file.read().decode("ascii", errors="replace"))
    with open(paths[1], encoding="utf-8") as file:
        kernels = parse_usage(file.read())
    if {kernel["arch"] for kernel in kernels} != set(ARCHITECTURES) or any(k["kernel"] not in bounds for k in kernels):
        return None
    for kernel in kernels:
        kernel["threads"] = bounds[kernel["kernel"]]
    return kernels


def complaints(kernel):
    """What is wrong with one kernel on one architecture."""
    found = []
    if kernel["spilled"]:
        found.append(f"{kernel['spilled']} bytes of registers are spilled: give a thread smaller tiles, or looser bounds")
    if kernel["stack"]:
        found.append(f"{kernel['stack']} bytes of local memory: an array is indexed by what the compiler does not know")
    if kernel["threads"] is None:
        found.append("no __launch_bounds__")
    else:
        need = up(kernel["registers"], REGISTER_UNIT) * up(kernel["threads"], WARP)
        if need > REGISTERS:
            found.append(f"{kernel['registers']} registers for {kernel['threads']} threads are {need}, "
                         f"more than {REGISTERS}")
    if kernel["shared"] > STATIC_SHARED:
        found.append(f"{kernel['shared']} bytes of static shared memory, more than {STATIC_SHARED}")
    return found


def usage_of(built, cache, nvcc, root, source, flags, headers):
    """What the build recorded, else compile_file, or what it returned for the same bytes."""
    if built:
        name = os.path.relpath(source, os.path.join(root, "runtime", "cuda"))
        if kernels := recorded(built, name, os.path.getmtime(source)):
            return kernels
        print(f"{os.path.relpath(source, root)}: not recorded by the build, so it is compiled here")
    if not cache:
        return compile_file(nvcc, source, flags)
    digest = hashlib.sha256(repr((headers, flags, ARCHITECTURES)).encode())
    for path in (source, __file__):
        with open(path, "rb") as file:
            digest.update(file.read())
    path = os.path.join(cache, os.path.basename(source) + "." + digest.hexdigest()[:16] + ".json")
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    kernels = compile_file(nvcc, source, flags)
    os.makedirs(cache, exist_ok=True)
    with open(path + f".{os.getpid()}", "w", encoding="utf-8") as file:
        json.dump(kernels, file)
    os.replace(path + f".{os.getpid()}", path)
    return kernels


def short_names(kernels):
    """Readable names: templates and all, without arguments and the namespace."""
    if not shutil.which("c++filt"):
        return
    names = sorted({kernel["kernel"] for kernel in kernels})
    plain = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True).stdout.splitlines()
    # In order: the return type of a template, the arguments, the namespaces.
    for name, full in zip(names, plain):
        short = re.sub(r"^void ", "", full)
        short = re.sub(r"\(anonymous namespace\)::|trencadis::|ladder::", "", short)
        short = re.sub(r"\((?:bool|int)\)", "", short).split("(")[0]
        for kernel in kernels:
            if kernel["kernel"] == name:
                kernel["kernel"] = short


def check_sources(nvcc, root, sources, flags, cache=None, built=None):
    """Prints a line for each kernel; the number of kernels, and of those that break a rule."""
    headers = []
    for path in sorted(glob.glob(os.path.join(root, "runtime", "**", "*.h"), recursive=True) +
                       glob.glob(os.path.join(root, "runtime", "**", "*.cuh"), recursive=True)):
        with open(path, "rb") as file:
            headers.append(hashlib.sha256(file.read()).hexdigest())
    # The longest first.
    sources = sorted(sources, key=os.path.getsize, reverse=True)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(lambda source: usage_of(built, cache, nvcc, root, source, flags, headers),
                                sources))
    count = bad = 0
    for source, kernels in sorted(zip(sources, results)):
        print(os.path.relpath(source, root))
        short_names(kernels)
        for kernel in sorted(kernels, key=lambda k: (k["kernel"], k["arch"])):
            wrong = complaints(kernel)
            print(f"  sm_{kernel['arch']}  {kernel['registers']:3} registers  {kernel['shared']:5} bytes shared  "
                  f"{kernel['threads'] or '?':>4} threads  {kernel['kernel']}")
            for text in wrong:
                print(f"    FAILED: {text}")
            count += 1
            bad += bool(wrong)
    return count, bad


PLANTED = {
    # rule: (kernel, a word of the complaint; None: the kernel is right)
    "right": ("__global__ void __launch_bounds__(256) right(float* x) { x[threadIdx.x] *= 2; }", None),
    "spill": ("""__global__ void __launch_bounds__(1024) spill(float* x) {
  float v[128];
#pragma unroll
  for (int i = 0; i < 128; ++i) v[i] = x[i * 1024 + threadIdx.x];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 128; ++i) x[(i * 7 % 128) * 1024 + threadIdx.x] = v[i] * v[(i * 5 + 3) % 128];
}""", "spilled"),
    "local": ("""__global__ void __launch_bounds__(64) local(float* x, const int* at) {
  float v[32];
  for (int i = 0; i < 32; ++i) v[at[i] % 32] = x[i];
  x[threadIdx.x] = v[at[threadIdx.x] % 32];
}""", "local memory"),
    "bounds": ("__global__ void bounds(float* x) { x[threadIdx.x] *= 2; }", "no __launch_bounds__"),
}


def self_test(nvcc):
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, (text, word) in PLANTED.items():
            with open(os.path.join(folder, name + ".cu"), "w", encoding="utf-8") as file:
                file.write(text)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            found = dict(zip(PLANTED, pool.map(
                lambda name: compile_file(nvcc, os.path.join(folder, name + ".cu"), []), PLANTED)))
    for name, (_, word) in PLANTED.items():
        per_arch = [complaints(kernel) for kernel in found[name]]
        good = len(per_arch) == len(ARCHITECTURES) and all(
            any(word in text for text in texts) if word else not texts for texts in per_arch)
        failures += not good
        print(f"{name}: {per_arch}{'' if good else '   NOT AS EXPECTED'}")
    # What no compiler would accept in a source: only the arithmetic can be tried.
    right = {"kernel": "k", "arch": 80, "stack": 0, "spilled": 0, "registers": 32, "shared": 0, "threads": 256}
    for change, word in (({"registers": 129, "threads": 512}, "more than 65536"), ({"shared": 49153}, "static shared"),
                         ({}, None)):
        texts = complaints(right | change)
        good = any(word in text for text in texts) if word else not texts
        failures += not good
        print(f"{change}: {texts}{'' if good else '   NOT AS EXPECTED'}")
    # What a build records is what is found here, and nothing where the build was for other architectures.
    with tempfile.TemporaryDirectory() as folder:
        for name in ("spill", "bounds"):
            source = os.path.join(folder, name + ".cu")
            with open(source, "w", encoding="utf-8") as file:
                file.write(PLANTED[name][0])
            build = [nvcc, "-std=c++20", "-O3", "-Xptxas=-v", "--no-compress", "-c", source, "-o", source + ".o"]
            both = ["--generate-code=arch=compute_80,code=[sm_80]", "--generate-code=arch=compute_90,code=[compute_90,sm_90]"]
            good = record(build + both) == 0 and recorded(folder, name + ".cu", 0) == found[name]
            good = good and record(build + both[1:]) == 0 and recorded(folder, name + ".cu", 0) is None
            failures += not good
            print(f"{name}, recorded: {'as compiled here' if good else 'NOT AS EXPECTED'}")
    return 1 if failures else 0


def main():
    arguments, flags = sys.argv[1:], []
    if arguments[:1] == ["--record"]:
        sys.exit(record(arguments[1:]))
    if "--" in arguments:
        flags = arguments[arguments.index("--") + 1:]
        arguments = arguments[:arguments.index("--")]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", nargs="?")
    parser.add_argument("--nvcc", default="nvcc")
    parser.add_argument("--cache")
    parser.add_argument("--built", help="the folder of the objects of runtime_cuda")
    parser.add_argument("--self-test", action="store_true")
    options = parser.parse_args(arguments)
    nvcc = shutil.which(options.nvcc)
    if not nvcc:
        print(f"skipped: there is no {options.nvcc}")
        sys.exit(77)
    if options.self_test:
        sys.exit(self_test(nvcc))
    if not options.root:
        parser.error("ROOT is missing")
    root = os.path.abspath(options.root)
    sources = glob.glob(os.path.join(root, "runtime", "cuda", "**", "*.cu"), recursive=True)
    flags = ["-I" + root, "-I" + os.path.join(root, "runtime", "cuda", "gpu"), *flags]
    try:
        count, bad = check_sources(nvcc, root, sources, flags, options.cache, options.built)
    except RuntimeError as error:
        print(error)
        sys.exit(1)
    print(f"{len(sources)} files, {count} kernels (each architecture counted), {bad} break a rule")
    sys.exit(1 if bad or not count else 0)


if __name__ == "__main__":
    main()
