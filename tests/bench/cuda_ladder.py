#!/usr/bin/env python3
"""Fills the table of speeds of the kernel ladders in runtime/cuda/ladders.md, where there is a GPU.

    cuda_ladder.py [PROGRAM] [--readme FILE]    runs PROGRAM (build/release/bin/cuda_ladder), writes the table
    cuda_ladder.py --not-measured               writes the table without numbers
    cuda_ladder.py --self-test                  the table, from planted measurements

Exit code 77, with one line that says why, where there is no GPU; the page stays as it is then.
"""

import argparse
import json
import os
import subprocess
import sys

from page import renew

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BEGIN = "<!-- cuda_ladder.py: begin -->"
END = "<!-- cuda_ladder.py: end -->"
NOT_MEASURED = "not measured"


def rate(row):
    if row["rate"] is None:
        return NOT_MEASURED
    unit, scale = {"op/s": ("TFLOP/s", 1e12), "B/s": ("GB/s", 1e9)}[row["unit"]]
    return f"{row['rate'] / scale:.3g} {unit}"


def reference_rate(rows, row):
    """What a row is compared to: the reference of its group and type, or of the products if its group has none."""
    for group in (row["group"], "product"):
        for other in rows:
            if other["reference"] and other["group"] == group and other["type"] == row["type"]:
                if other["unit"] == row["unit"]:
                    return other["rung"], other["rate"]
    raise ValueError(f"nothing to compare {row['group']} {row['rung']} to")


def table(measurements):
    """The lines between the markers."""
    rows = measurements["rows"]
    device = measurements["device"]
    lines = [f"Measured on: {device}." if device else "To be measured where there is a GPU.", "",
             "| ladder | rung | type | time | speed | of |", "| --- | --- | --- | --- | --- | --- |"]
    for row in rows:
        time = NOT_MEASURED if row["ms"] is None else f"{row['ms']:.3g} ms"
        of = ""
        if not row["reference"]:
            name, best = reference_rate(rows, row)
            of = f"{row['rate'] / best:.0%} of {name}" if best else name
        lines.append(f"| {row['group']} | {row['rung']} | {row['type']} | {time} | {rate(row)} | {of} |")
    return lines


def fill(text, measurements):
    """The page with its table replaced."""
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise ValueError(f"the page must hold '{BEGIN}' and, after it, '{END}', once each")
    return renew(text, BEGIN, END, table(measurements))


def self_test():
    def row(group, rung, ms, value, unit, reference):
        return {"group": group, "rung": rung, "type": "f32", "ms": ms, "rate": value, "unit": unit,
                "reference": reference}
    measured = {"device": "GPU 7", "rows": [
        row("product", "naive", 100.0, 1e12, "op/s", False), row("product", "cuBLAS", 2.0, 5e13, "op/s", True),
        row("attention", "fast", 1.0, 2.5e13, "op/s", False), row("norm", "fast", 1.0, 1e12, "B/s", False),
        row("norm", "copy", 1.0, 2e12, "B/s", True)]}
    text = fill(f"a\n{BEGIN}\nold\n{END}\nz\n", measured)
    for expected in ("GPU 7", "| product | naive | f32 | 100 ms | 1 TFLOP/s | 2% of cuBLAS |",
                     "| product | cuBLAS | f32 | 2 ms | 50 TFLOP/s |  |", "| 25 TFLOP/s | 50% of cuBLAS |",
                     "| 1e+03 GB/s | 50% of copy |"):
        assert expected in text, f"no '{expected}' in\n{text}"
    assert text.startswith("a\n") and text.endswith("z\n") and "old" not in text
    assert fill(text, measured) == text
    unmeasured = {"device": "", "rows": [r | {"ms": None, "rate": None} for r in measured["rows"]]}
    assert "| product | naive | f32 | not measured | not measured | cuBLAS |" in fill(text, unmeasured)
    for wrong in ("no markers", f"{END}\n{BEGIN}"):
        try:
            fill(wrong, measured)
        except ValueError:
            continue
        raise AssertionError(f"'{wrong}' was accepted")
    print("self-test: the table is as expected")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="?", default=os.path.join(ROOT, "build", "release", "bin", "cuda_ladder"))
    parser.add_argument("--readme", default=os.path.join(ROOT, "runtime", "cuda", "ladders.md"))
    parser.add_argument("--not-measured", action="store_true")
    parser.add_argument("--self-test", action="store_true")
    options = parser.parse_args()
    if options.self_test:
        return self_test()
    if not os.path.exists(options.program):
        sys.exit(f"cuda_ladder.py: there is no {options.program}; build the target cuda_ladder (it needs nvcc)")
    run = subprocess.run([options.program] + (["--list"] if options.not_measured else []), capture_output=True,
                         text=True)
    if run.returncode == 77:
        print(f"cuda_ladder.py: {run.stderr.strip()}; the table in {os.path.relpath(options.readme)} stays as it is")
        sys.exit(77)
    if run.returncode:
        sys.exit(f"cuda_ladder.py: {options.program} failed\n{run.stderr}")
    with open(options.readme, encoding="utf-8") as file:
        text = file.read()
    with open(options.readme, "w", encoding="utf-8") as file:
        file.write(fill(text, json.loads(run.stdout)))
    print(f"cuda_ladder.py: wrote the table in {os.path.relpath(options.readme)}")


if __name__ == "__main__":
    main()
