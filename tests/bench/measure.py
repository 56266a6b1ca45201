#!/usr/bin/env python3
"""Runs a command and writes its wall time and peak resident memory to FILE.RANK, as JSON.

    measure.py FILE COMMAND...        under mpirun, or torch.distributed's RANK, or alone (rank 0)

It stands between mpirun and each rank. It is a program of its own, and imports next to nothing, since the peak that the
kernel reports for a child starts from that of the process that forked it: here under 10 MB.
"""

import os
import sys
import time

rank = os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ.get("RANK") or "0"
begin = time.monotonic()
child = os.fork()
if child == 0:
    try:
        os.execvp(sys.argv[2], sys.argv[2:])
    except OSError as error:
        print(f"{sys.argv[2]}: {error.strerror}", file=sys.stderr)
        os._exit(127)
_, status, usage = os.wait4(child, 0)
with open(f"{sys.argv[1]}.{rank}", "w", encoding="ascii") as file:
    file.write(f'{{"seconds": {time.monotonic() - begin:.3f}, "peak_bytes": {usage.ru_maxrss * 1024}}}\n')
code = os.waitstatus_to_exitcode(status)
sys.exit(code if code >= 0 else 128 - code)
