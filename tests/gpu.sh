#!/usr/bin/env bash
# Everything that this project can find out on a machine with a GPU, in under eight minutes. See --help.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! command -v python3 >/dev/null; then
  echo "gpu.sh: python3 is missing" >&2
  exit 1
fi
exec python3 tests/gpu/run.py "$@"
