#!/usr/bin/env python3
"""Mutants: copies of zero/ with one line broken on purpose, which the test suite must reject.

  mutate.py list                                          names and what each teaches
  mutate.py write NAME SOURCE_DIR OUTPUT                  the broken copy of its file
  mutate.py run NAME PROGRAM                              succeeds if PROGRAM, built with the mutant, fails its test case

mutants.json holds, for each: name, file, old (text that stands in the file exactly once), new, caught_by (a doctest
test-case filter), note, and suite: "cuda" where the program is test_zero_cuda_sim, else left out. A mutant that no longer applies is an error: the code it broke has changed, so look at it again.
"""
import json
import pathlib
import subprocess
import sys

TABLE = pathlib.Path(__file__).with_name("mutants.json")
TIMEOUT_SECONDS = 120  # a mutant may hang instead of failing; that is caught, too


def mutant(name):
    for entry in json.loads(TABLE.read_text()):
        if entry["name"] == name:
            return entry
    sys.exit(f"mutate.py: there is no mutant {name!r}; mutate.py list shows them")


def broken_source(entry, source_dir):
    text = (pathlib.Path(source_dir) / entry["file"]).read_text()
    count = text.count(entry["old"])
    if count != 1:
        sys.exit(f"mutate.py: the text that mutant {entry['name']} replaces stands {count} times in {entry['file']}; "
                 "it must stand there once")
    return text.replace(entry["old"], entry["new"])


def run(entry, program):
    try:
        # The first failure is enough; what comes after it may hang until a collective's patience ends.
        result = subprocess.run([program, f"--test-case={entry['caught_by']}", "--abort-after=1"], capture_output=True,
                                text=True, timeout=TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        print(f"{entry['name']}: caught, it hangs in {entry['caught_by']!r}")
        return 0
    if "test cases: 0 " in result.stdout.replace("  ", " "):
        print(result.stdout)
        print(f"{entry['name']}: no test case matches {entry['caught_by']!r}")
        return 1
    if result.returncode == 0:
        print(f"{entry['name']}: NOT caught by {entry['caught_by']!r}: {entry['note']}")
        return 1
    print(f"{entry['name']}: caught by {entry['caught_by']!r}, exit code {result.returncode}")
    return 0


def main(arguments):
    if arguments == ["list"]:
        for entry in json.loads(TABLE.read_text()):
            print(f"{entry['name']:28} {entry['file']:28} {entry['note']}")
    elif len(arguments) == 4 and arguments[0] == "write":
        pathlib.Path(arguments[3]).write_text(broken_source(mutant(arguments[1]), arguments[2]))
    elif len(arguments) == 3 and arguments[0] == "run":
        return run(mutant(arguments[1]), arguments[2])
    else:
        sys.exit(__doc__)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
