#!/usr/bin/env bash
# Proves that all C++ and CUDA sources are laid out as .clang-format says.
#
#   check_format.sh [ROOT]        the tree to check; default: this project
#   check_format.sh --fix         formats the sources instead
#   check_format.sh --self-test   plants a badly laid out file and demands that it is found
#
# Each major version of clang-format breaks lines in its own way; this project follows 14, Debian 12's. Where another or
# none is found, the check is skipped: exit code 77, which ctest reports as skipped.
set -euo pipefail

version=14
here="$(cd "$(dirname "$0")" && pwd)"

formatter=""
for name in clang-format-$version clang-format; do
  if command -v "$name" >/dev/null && "$name" --version | grep -q "version $version\."; then
    formatter=$name
    break
  fi
done
if [ -z "$formatter" ]; then
  echo "check_format.sh: skipped: clang-format $version is not here ($(clang-format --version 2>/dev/null || echo none))"
  exit 77
fi

sources() {  # the same files as the other checks see, each ended by a zero byte
  PYTHONPATH="$here" python3 - "$1" <<'PYTHON'
import os, sys
from sources import CODE, files
for path in files(sys.argv[1]):
    if path.endswith(CODE):
        print(os.path.join(sys.argv[1], path), end="\0")
PYTHON
}

check() {
  sources "$1" | xargs -0 --no-run-if-empty "$formatter" --style=file --dry-run -Werror --ferror-limit=3
}

case "${1:-}" in
  --self-test)
    tree=$(mktemp -d)
    trap 'rm -rf "$tree"' EXIT
    cp "$here/../../.clang-format" "$tree"
    mkdir "$tree/runtime"
    printf 'int good(int a) { return a; }\n' >"$tree/runtime/good.cpp"
    check "$tree" || { echo "self-test: a good file is refused"; exit 1; }
    printf 'int  bad( int a ){return a;}\n' >"$tree/runtime/bad.cpp"
    if check "$tree" 2>/dev/null; then
      echo "self-test: a bad file is accepted"
      exit 1
    fi
    echo "self-test: as expected"
    ;;
  --fix) sources "$here/../.." | xargs -0 --no-run-if-empty "$formatter" --style=file -i ;;
  *)
    if ! check "${1:-$here/../..}"; then
      echo "check_format.sh: run tests/checks/check_format.sh --fix"
      exit 1
    fi
    ;;
esac
