#!/usr/bin/env python3
"""Where the time of ./test.sh goes: a table of its parts by preset, from the logs of the last run.

    where_time_goes.py [--build DIR]      prints it
    where_time_goes.py --update           writes it into CONTRIBUTING.md, between its marks
    where_time_goes.py --slowest N        and the N slowest files and test entries of each preset
    where_time_goes.py --self-test        on logs that were made up

Read are build/PRESET/.ninja_log, when each file was begun and done, tests.xml, ctest's times, and seconds.txt, in which
test.sh notes what passed on the clock. Parts are sums over files and entries: two at a time take half of it on the clock,
and a machine that does something else makes all of them longer. A file that was built twice counts as it was last; ccache
makes files cheap that it knows.
"""
import argparse
import collections
import os
import pathlib
import re
import sys
import tempfile
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/bench"))
import page  # noqa: E402: beside the scripts that write their pages with it

PRESETS = ["release", "asan", "tsan"]
BEGIN, END = "<!-- tests/where_time_goes.py --update -->", "<!-- end of what where_time_goes.py wrote -->"
SMALL = 5  # seconds: rows that are smaller everywhere are one row

# The first that an output's path matches. Objects lie in .../CMakeFiles/TARGET.dir/PATH_OF_THE_SOURCE.o.
BUILD_PARTS = [
    (r"cmake_pch", "precompiled headers"),
    (r"^tests/zero/mutants/.*\.o$", "mutants"),
    (r"^tests/.*\.o$", "tests"),
    (r"^(runtime/cuda|dist/nccl)/CMakeFiles/.*\.o$", "CUDA sources by nvcc"),
    (r"\.cu\.o$", "CUDA sources for the simulator"),
    (r"_(cuda_sim|nccl_sim|cudasim|ncclsim)\.dir/.*\.o$", "simulator, and host code for it"),
    (r"\.dir/(runtime|autograd|layers|optim|dist|zero|models)/.*\.o$", r"\1"),
    (r"\.o$", "other files"),
    (r"^bin/|\.(so|a)$", "linking"),
]
TEST_PARTS = [
    (r"^mutant_", "mutants"),
    (r"^planted_", "planted bugs"),
    (r"^check_ptxas", "kernels against ptxas"),
    (r"^(check_|pages)", "checks of sources and pages"),
    (r"^example_", "examples"),
    (r"^(\w+)\..*$", r"script \1"),
    (r"^(dist|zero)_mpi_np|^dist_(nccl|staged)_sim_np|^dist_speed", "mpirun of dist and zero"),
    (r"^(dist_nccl_sim)_.*$", r"\1"),
    (r"^(runtime_cuda_sim)_.*$", r"\1"),
    (r"^(.*)$", r"\1"),
]


def part_of(name, parts):
    for pattern, part in parts:
        if match := re.search(pattern, name):
            return match.expand(part)
    return None


def build_times(folder):
    """{output: seconds}; a later line of the log replaces an earlier one of the same output."""
    times = {}
    log = folder / ".ninja_log"
    for line in log.read_text().splitlines() if log.exists() else []:
        fields = line.split("\t")
        if len(fields) == 5:
            times[os.path.relpath(fields[3], folder) if os.path.isabs(fields[3]) else fields[3]] = (
                int(fields[1]) - int(fields[0])) / 1000
    return times


def test_times(folder):
    """{ctest entry: seconds}"""
    if not (folder / "tests.xml").exists():
        return {}
    suite = xml.etree.ElementTree.parse(folder / "tests.xml").getroot()
    return {case.get("name"): float(case.get("time")) for case in suite.iter("testcase")}


def clock_times(folder):
    """{"built" and "tested": seconds} on the clock, as test.sh noted them."""
    if not (folder / "seconds.txt").exists():
        return {}
    return {word: float(value) for word, value in (line.split() for line in (folder / "seconds.txt").read_text().splitlines())}


def sums(times, parts):
    result = collections.Counter()
    for name, seconds in times.items():
        if part := part_of(name, parts):
            result[part] += seconds
    return result


def rows_of(title, by_preset):
    """Rows of a table, the largest first; what is small everywhere is put together."""
    names = sorted({name for counts in by_preset for name in counts}, key=lambda n: -sum(c[n] for c in by_preset))
    large = [name for name in names if max(counts[name] for counts in by_preset) >= SMALL]
    rows = [(name, [counts[name] for counts in by_preset]) for name in large]
    rest = [sum(counts[name] for name in names if name not in large) for counts in by_preset]
    if any(rest):
        rows.append(("the rest", rest))
    total = [sum(counts.values()) for counts in by_preset]
    return [(f"**{title}**", total), *rows]


def table(build):
    folders = [build / preset for preset in PRESETS]
    clocks = [collections.Counter(clock_times(folder)) for folder in folders]
    rows = [("**on the clock: built**", [clock["built"] for clock in clocks]),
            ("**on the clock: tested**", [clock["tested"] for clock in clocks])]
    rows += rows_of("building, sum", [sums(build_times(folder), BUILD_PARTS) for folder in folders])
    rows += rows_of("testing, sum", [sums(test_times(folder), TEST_PARTS) for folder in folders])
    lines = ["| seconds | " + " | ".join(PRESETS) + " |", "| --- |" + " ---: |" * len(PRESETS)]
    for name, seconds in rows:
        lines.append(f"| {name} | " + " | ".join(f"{s:.0f}" if s else "" for s in seconds) + " |")
    return lines


def slowest(build, count):
    for preset in PRESETS:
        for title, times in (("files", build_times(build / preset)), ("test entries", test_times(build / preset))):
            if times:
                print(f"\n{preset}, the slowest {title}:")
            for name, seconds in sorted(times.items(), key=lambda item: -item[1])[:count]:
                print(f"  {seconds:7.1f}  {name}")


def self_test():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name) / "release"
        folder.mkdir()
        log = ["# ninja log v5",
               "0\t9000\t0\tCMakeFiles/zero.dir/zero/engine.cpp.o\tx",  # of an earlier build
               "0\t7000\t0\tCMakeFiles/zero.dir/zero/engine.cpp.o\tx",
               "100\t6100\t0\ttests/zero/mutants/CMakeFiles/mutant_a.dir/a.cpp.o\tx",
               "0\t8000\t0\tCMakeFiles/runtime_cuda_sim.dir/runtime/cuda/gelu.cu.o\tx",
               "0\t5000\t0\tCMakeFiles/runtime_cuda_sim.dir/runtime/cuda/streams.cpp.o\tx",
               f"0\t5500\t0\t{folder}/bin/test_zero\tx", "0\t1000\t0\tliboptim.a\tx"]
        (folder / ".ninja_log").write_text("\n".join(log))
        (folder / "tests.xml").write_text('<testsuite><testcase name="checkpoints.a" time="20"/><testcase name="zero" '
                                          'time="30"/><testcase name="checkpoints.b" time="5"/></testsuite>')
        (folder / "seconds.txt").write_text("built 17\ntested 28\n")
        lines = table(pathlib.Path(name))
    expected = {"**on the clock: built**": 17, "**on the clock: tested**": 28, "**building, sum**": 32.5, "zero": None,
                "mutants": 6, "CUDA sources for the simulator": 8, "simulator, and host code for it": 5, "linking": 6.5,
                "**testing, sum**": 55, "script checkpoints": 25}
    found = {line.split(" | ")[0].removeprefix("| "): line.split(" | ")[1] for line in lines}
    wrong = [f"{part}: {found.get(part)}, not {seconds:.0f}" for part, seconds in expected.items()
             if seconds is not None and found.get(part) != f"{seconds:.0f}"]
    wrong += [] if "| zero | 7 |" in "\n".join(lines) and "| zero | 30 |" in "\n".join(lines) else ["zero: not 7 and 30"]
    print("\n".join(wrong + lines) if wrong else "self-test: passed")
    return 1 if wrong else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build", metavar="DIR")
    parser.add_argument("--slowest", type=int, metavar="N")
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--self-test", action="store_true")
    arguments = parser.parse_args()
    if arguments.self_test:
        return self_test()
    lines = table(arguments.build)
    if arguments.update:
        page.renew_file(ROOT / "CONTRIBUTING.md", BEGIN, END, lines)
    else:
        print("\n".join(lines))
    if arguments.slowest:
        slowest(arguments.build, arguments.slowest)
    return 0


if __name__ == "__main__":
    sys.exit(main())
