#!/usr/bin/env python3
"""Passes if every planted bug that this build should catch is caught, and no right program is suspected.

    expect_caught.py PROGRAM BUILD [NAME]      BUILD: release, asan or tsan; NAME: this bug only, with what it prints

bugs.json says which build has to catch what, and with what words: "all" stands for the builds that it does not name. Each
is there for something: release for orders, poison and checks, asan for exact bounds and alignment, tsan for races. A file
NAME.expected, which a chapter shows, holds the words of "all" at length.

Each broken program runs in several orders of threads and blocks (TRENCADIS_SIM_ORDER) until one run fails; that one has to
say the words. The right programs must pass in every order.
"""

import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ORDERS = ["forward", "reverse", "seed:1", "seed:2"]


def run(program, argument, order):
    environment = dict(os.environ, TRENCADIS_SIM_ORDER=order, TSAN_OPTIONS="halt_on_error=1")
    return subprocess.run([program, argument], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace", timeout=100, check=False)


def caught(program, name, words, show):
    """None, or what went wrong."""
    for order in ORDERS:
        result = run(program, name, order)
        if show:
            print(f"-- order {order}: exit code {result.returncode}\n{result.stdout}")
        if result.returncode == 2:
            return "the program does not know it"
        if result.returncode != 0:
            return None if words in result.stdout else f"order {order}: does not say '{words}' but\n{result.stdout[:3000]}"
    return "NOT caught"


def main():
    if len(sys.argv) not in (3, 4):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    program, build, only = (*sys.argv[1:], None)[:3]
    with open(os.path.join(HERE, "bugs.json"), encoding="utf-8") as file:
        bugs = json.load(file)
    passed = failed = 0

    def judge(name, wrong):
        nonlocal passed, failed
        if wrong is None:
            passed += 1
            return
        failed += 1
        print(f"{name}: {wrong}")

    for bug in bugs:
        words = bug.get(build, bug.get("all"))
        shown = os.path.join(HERE, bug["name"] + ".expected")
        if os.path.exists(shown) and words == bug.get("all"):
            with open(shown, encoding="utf-8") as file:
                words = file.read()
        if words is not None and only in (None, bug["name"]):
            judge(bug["name"], caught(program, bug["name"], words, only is not None))
    if only is None:
        for order in ORDERS:
            result = run(program, "--right", order)
            judge(f"the right programs, order {order}", result.stdout if result.returncode != 0 else None)
    print(f"{passed} passed, {failed} failed")
    return 0 if passed > 0 and failed == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
