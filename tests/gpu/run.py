#!/usr/bin/env python3
"""tests/gpu.sh: everything that this project can find out on a machine with a GPU, in under eight minutes.

    tests/gpu.sh                       builds, tests, checks and measures; writes result.json, result.txt
                                       and log.txt into gpu_results
    tests/gpu.sh --pack [FOLDER]       on a machine with a network: fills FOLDER (build/gpu_pack) with what must be carried
                                       to one without: headers of fmt, doctest, nlohmann-json, Eigen and cuDNN's front
                                       end, and compute-sanitizer; 24 MiB. CUDA, cuDNN, NCCL must be there
    tests/gpu.sh --rehearse            without a GPU: builds the same way, runs each program, expects it to say that it has
                                       no GPU
  --out FOLDER    for the results (gpu_results)        --pack-folder FOLDER   what was carried (build/gpu_pack)
  --built FOLDER  a build folder that is built already (else build/gpu is built)
  --only PARTS    some of: {parts}

The machine needs nvcc, cuBLAS, g++, CMake, Python 3; cuDNN and NCCL for the parts about them. No network, no MPI.
With the device tool of this workplace (/work/.library/device/README.md), after tests/gpu.sh --pack here:

    run(carry=["build/gpu_pack"], timeout_s=560, command='tests/gpu.sh --out "$OUT"')

Every part has a time limit and a status (ok, failed, timed out, skipped) and none stops the others. Exit code: 0 all is
well, 1 a part failed or ran out of time, 77 there is no GPU, 2 usage.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time

import pack
import report

ROOT = pack.ROOT
NO_GPU = 77
BUDGET = 460  # seconds for everything
SANITIZER_ERROR = 9

# name -> (seconds at most, program, arguments). Programs of the build. In this order; the checkers last, since their time
# varies most.
PROGRAMS = {
    "kernels": (90, "test_runtime_cuda", []),
    "nccl": (40, "test_gpu_nccl", []),
    "tiny_step": (30, "gpu_train_step", ["--tiny"]),
    "gpt2_f32": (60, "gpu_train_step", ["--steps", "10"]),
    "gpt2_tf32": (45, "gpu_train_step", ["--steps", "10", "--tf32"]),
    "ladder": (60, "cuda_ladder", []),
    # Reduced sets: the kernels with shared memory and barriers; a tool makes them ten to a hundred times as slow.
    "memcheck": (75, "test_runtime_cuda",
                 ["--source-file=*test_attention.cpp,*test_ladder*,*test_embedding*,*test_layer_norm*,*test_cross_entropy*,"
                  "*test_matmul*,*test_optimizer*,*test_caching_pool*"]),
    "racecheck": (75, "test_runtime_cuda",
                  ["--source-file=*test_ladder*,*test_layer_norm*,*test_cross_entropy*,*test_norm*"]),
}
TOOLS = ("memcheck", "racecheck")
PARTS = ["build", *PROGRAMS]


class Runner:
    """Runs commands within limits of time; each gives a result: status, seconds, the end of its output."""

    def __init__(self, out, budget):
        self.out, self.end = out, time.monotonic() + budget
        self.results = {}

    def run(self, part, command, limit, expected=(0,), env=None):
        """The exit code (None: it did not finish) and the standard output."""
        begin = time.monotonic()
        limit = min(limit, self.end - begin)
        if limit < 3:
            self.note(part, "skipped", "no time is left")
            return None, ""
        log = os.path.join(self.out, "log.txt")
        with open(log, "a", encoding="utf-8") as errors:
            here = errors.tell()
            errors.write(f"\n== {part}: " + " ".join(command) + "\n")
            errors.flush()
            try:
                done = subprocess.run(["timeout", "-k", "2", str(limit), *command], stdin=subprocess.DEVNULL,
                                      stdout=subprocess.PIPE, stderr=errors, cwd=ROOT, env=env, check=False)
                code, output = done.returncode, done.stdout.decode(errors="replace")
            except OSError as error:
                code, output = 127, str(error)
            errors.write(output)
        seconds = time.monotonic() - begin
        if code in (124, 137):
            self.note(part, "timed out", f"after {limit:.0f} s", seconds)
            return None, output
        self.note(part, "ok" if code in expected else "failed", "" if code in expected else f"exit code {code}", seconds)
        if code not in expected:
            self.results[part]["output"] = tail(log, here)
        return code, output

    def note(self, part, status, why="", seconds=0.0):
        before = self.results.get(part, {}).get("seconds", 0)
        self.results[part] = {"status": status, "why": why, "seconds": round(before + seconds, 1)}


def tail(path, start, lines=25):
    with open(path, encoding="utf-8", errors="replace") as file:
        file.seek(start)
        return file.read().splitlines()[-lines:]


def ask_gpu():
    """{"name", "memory_mib", "compute", "driver"} of the first GPU; {} where nvidia-smi finds none."""
    command = ["nvidia-smi", "--query-gpu=name,memory.total,compute_cap,driver_version", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    fields = [field.strip() for field in done.stdout.splitlines()[0].split(",")] if done.stdout.strip() else []
    if done.returncode or len(fields) != 4:
        return {}
    return {"name": fields[0], "memory_mib": int(float(fields[1])), "compute": fields[2], "driver": fields[3]}


def build(runner, options, gpu):
    """Configures and builds gpu_programs; the folder of programs."""
    folder = os.path.join(ROOT, "build", "gpu")
    os.makedirs(folder, exist_ok=True)
    links = os.path.join(folder, "nvidia")
    pack.nvidia_links(links)
    prefixes = [p for p in (options.pack_folder, links) if os.path.isdir(p)]
    command = ["cmake", "-S", ROOT, "-B", folder, "-DCMAKE_BUILD_TYPE=Release", "-DTRENCADIS_MPI=OFF",
               "-DTRENCADIS_FETCH_CUDA_HEADERS=OFF", "-DTRENCADIS_FETCH_CUDNN_FRONTEND=OFF",
               "-DCMAKE_PREFIX_PATH=" + ";".join(prefixes)]
    if shutil.which("ninja"):
        command += ["-G", "Ninja"]
    if pack.toolkit():
        command.append("-DCUDAToolkit_ROOT=" + pack.toolkit())
    if gpu.get("compute"):  # its own machine code only: half the time
        command.append("-DTRENCADIS_CUDA_ARCHITECTURES=" + gpu["compute"].replace(".", ""))
    code, said = runner.run("build", command, 60)
    runner.results["build"]["configured"] = [line[3:] for line in said.splitlines()
                                             if line.startswith(("-- CUDA", "-- cuDNN", "-- NCCL", "-- Matrix"))]
    if code == 0:
        configured = runner.results["build"]["configured"]
        jobs = str(options.jobs or os.cpu_count() or 2)
        keep_going = ["--", "-k", "0"] if shutil.which("ninja") else ["--", "-k"]
        runner.run("build", ["cmake", "--build", folder, "--target", "gpu_programs", "-j", jobs, *keep_going],
                   3600 if options.rehearse else 240)
        runner.results["build"]["configured"] = configured
    return os.path.join(folder, "bin")


def run_programs(runner, options, gpu, programs):
    env = dict(os.environ)
    # Libraries of NVIDIA's Python packages find each other by this.
    libraries = os.path.join(ROOT, "build", "gpu", "nvidia", "lib")
    if os.path.isdir(libraries):
        env["LD_LIBRARY_PATH"] = libraries + ":" + env.get("LD_LIBRARY_PATH", "")
    expected = (NO_GPU,) if options.rehearse else (0,)
    for part, (limit, program, arguments) in PROGRAMS.items():
        if part not in options.only:
            continue
        path = os.path.join(programs, program)
        if not os.path.exists(path):
            # NCCL is a package that may be missing; the others must be there.
            runner.note(part, "skipped" if part == "nccl" else "failed", f"{program} was not built")
            continue
        command = [path, *arguments]
        if part.startswith("gpt2"):
            command += ["--batch", str(report.batch_for(gpu.get("memory_mib", 0)))]
        if part in TOOLS:
            tool = pack.sanitizer(options.pack_folder, os.path.join(ROOT, "build", "gpu"))
            if tool is None:
                runner.note(part, "skipped", "there is no compute-sanitizer; tests/gpu.sh --pack carries one")
                continue
            if options.rehearse:  # it cannot follow a program that never reaches a device
                command = [tool, "--version"]
            else:
                command = [tool, "--tool", part, "--error-exitcode", str(SANITIZER_ERROR), *command]
        _, output = runner.run(part, command, limit, (0,) if options.rehearse and part in TOOLS else expected, env)
        runner.results[part].update(report.numbers_of(part, output, gpu))


def parse(arguments):
    text = __doc__.replace("{parts}", " ".join(PARTS))
    parser = argparse.ArgumentParser(prog="tests/gpu.sh", usage=argparse.SUPPRESS, description=text,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    carried = os.path.join(ROOT, "build", "gpu_pack")
    parser.add_argument("--pack", nargs="?", const=carried, help=argparse.SUPPRESS)
    parser.add_argument("--rehearse", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--out", default=os.path.join(ROOT, "gpu_results"), help=argparse.SUPPRESS)
    parser.add_argument("--pack-folder", default=carried, help=argparse.SUPPRESS)
    parser.add_argument("--built", help=argparse.SUPPRESS)
    parser.add_argument("--jobs", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help=argparse.SUPPRESS)
    parser.add_argument("--self-test", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main(arguments):
    options = parse(arguments)
    if options.self_test:
        return report.self_test(Runner)
    if options.pack:
        try:
            print("\n".join(pack.pack(os.path.abspath(options.pack))))
        except OSError as error:
            print(f"gpu.sh: {error}", file=sys.stderr)
            return 1
        return 0
    gpu = ask_gpu()
    if options.rehearse and gpu:
        print(f"skipped: this machine has a GPU ({gpu['name']}): run tests/gpu.sh itself")
        return NO_GPU
    if not gpu and not options.rehearse:
        print("skipped: no GPU (nvidia-smi finds none); tests/gpu.sh --rehearse goes as far as one can without")
        return NO_GPU

    options.out, options.pack_folder = os.path.abspath(options.out), os.path.abspath(options.pack_folder)
    os.makedirs(options.out, exist_ok=True)
    log = os.path.join(options.out, "log.txt")
    if os.path.exists(log):
        os.remove(log)
    begin = time.monotonic()
    runner = Runner(options.out, 4 * 3600 if options.rehearse else BUDGET)
    if options.built:
        programs = os.path.join(options.built, "bin")
    elif "build" in options.only:
        programs = build(runner, options, gpu)
    else:
        programs = os.path.join(ROOT, "build", "gpu", "bin")
    run_programs(runner, options, gpu, programs)
    result = {"rehearsal": options.rehearse, "gpu": gpu, "seconds": round(time.monotonic() - begin, 1),
              "commit": report.commit(), "parts": runner.results}
    for path in report.write(options.out, result):
        print("wrote", os.path.relpath(path))
    print(report.text(result))
    return report.exit_code(result)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
