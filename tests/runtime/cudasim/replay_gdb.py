#!/usr/bin/env python3
"""Proves that the debugger's transcript in runtime/cudasim/README.md is real.

    replay_gdb.py PROGRAM TRANSCRIPT            passes if gdb, given the transcript's commands, prints the same again
    replay_gdb.py --update PROGRAM TRANSCRIPT   writes what gdb prints now

A line of the transcript that begins with "(gdb) " is a command. What differs between machines is left out of what gdb
prints: folders of source files, addresses, messages about threads and libraries. Exit code 77, which ctest reports as
skipped, where gdb is missing or may not debug.
"""

import difflib
import re
import shutil
import subprocess
import sys

PROMPT = "(gdb) "
NOISE = re.compile(r"\[Thread debugging|Using host libthread_db|warning: |\[New Thread|\[Thread .* exited|^Download|"
                   r"debuginfod|^\[Inferior|^$")


def replay(program, commands):
    arguments = ["gdb", "-q", "-nx", "-batch", "-ex", "set width 0", "-ex", "set confirm off", "-ex",
                 "set debuginfod enabled off"]
    for command in commands:
        arguments += ["-ex", "echo " + (PROMPT + command).replace(" ", "\\040") + "\\n", "-ex", command]
    result = subprocess.run(arguments + [program], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True, timeout=100, check=False)
    # Folders go: absolute ones, and those that ccache with a base_dir has made relative.
    text = re.sub(r"(?:\.\.)?(?:/[\w.@+-]+)+/(\w+\.(?:cu|cpp|h))", r"\1", result.stdout)
    text = re.sub(r"0x[0-9a-f]{9,}|(?<= at )0x[0-9a-f]+", "0x...", text)
    return [line.rstrip() for line in text.split("\n") if not NOISE.search(line)]


def main():
    update = "--update" in sys.argv
    paths = [argument for argument in sys.argv[1:] if argument != "--update"]
    if len(paths) != 2:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    program, transcript = paths
    with open(transcript, encoding="utf-8") as file:
        expected = file.read().rstrip("\n").split("\n")
    if shutil.which("gdb") is None:
        print("skipped: no gdb")
        return 77
    printed = replay(program, [line[len(PROMPT):] for line in expected if line.startswith(PROMPT)])
    if any("ptrace" in line or "Cannot create process" in line for line in printed):
        print("skipped: gdb may not debug here:\n" + "\n".join(printed))
        return 77
    if update:
        with open(transcript, "w", encoding="utf-8") as file:
            file.write("\n".join(printed) + "\n")
    elif printed != expected:
        print("\n".join(difflib.unified_diff(expected, printed, transcript, "gdb", lineterm="")))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
