#!/usr/bin/env bash
# Installs what is missing, builds everything and runs every test. See --help.
set -euo pipefail
cd "$(dirname "$0")"

help() {
  cat <<'TEXT'
Usage: ./test.sh [--quick | --preset NAME | --mutant NAME]

Builds in build/NAME and runs the tests with ctest. Without flags: the presets release (every test), asan (the unit
tests, with AddressSanitizer and UndefinedBehaviorSanitizer) and tsan (those with threads, with ThreadSanitizer).

  --quick         release only, and of it only the tests that take seconds (ctest label quick): under a minute
  --preset NAME   this preset only: release, debug, portable, asan or tsan (CMakePresets.json)
  --mutant NAME   breaks one line of zero/ on purpose, in a copy, and shows which tests notice: the exercises of
                  zero/README.md. `list` shows all mutants
  --help          this text

At the end stands how long each part took; tests/where_time_goes.py says what of, by parts of the build and of the tests.

Exit code 0 if all passed. To run one test by hand: build/release/bin/test_runtime, or
  ctest --preset release -R NAME
TEXT
}

usage_error() {
  echo "test.sh: $1 (see ./test.sh --help)" >&2
  exit 2
}

presets=(release asan tsan)
quick=no
mutant=
while [ $# -gt 0 ]; do
  case "$1" in
    --quick) quick=yes presets=(release) ;;
    --preset)
      [ $# -ge 2 ] || usage_error "--preset needs a name"
      case "$2" in
        release | debug | portable | asan | tsan) presets=("$2") ;;
        *) usage_error "there is no preset '$2': release, debug, portable, asan or tsan" ;;
      esac
      shift
      ;;
    --mutant)
      [ $# -ge 2 ] || usage_error "--mutant needs a name, or list"
      mutant=$2
      shift
      ;;
    -h | --help) help && exit 0 ;;
    *) usage_error "unknown flag '$1'" ;;
  esac
  shift
done

if [ "$mutant" = list ]; then
  exec python3 tests/zero/mutants/mutate.py list
fi
if [ -n "$mutant" ]; then
  python3 tests/zero/mutants/mutate.py list | grep "^$mutant " || usage_error "there is no mutant '$mutant'; --mutant list shows all"
fi

third_party/install.sh
cores=$(nproc)
# Open MPI refuses to start as root without these two.
if [ "$(id -u)" -eq 0 ]; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
export UBSAN_OPTIONS="${UBSAN_OPTIONS:-print_stacktrace=1}"

# Runs a command; its output goes to a file and is shown only if it fails.
quietly() {
  local log=$1 status=0
  shift
  "$@" >"$log" 2>&1 </dev/null || status=$?
  if [ $status -ne 0 ]; then
    grep -v '^\[[0-9]*/[0-9]*\]' "$log" | tail -n 150 >&2  # without Ninja's progress
    echo "test.sh: failed: $* (all of its output: $log)" >&2
  fi
  return $status
}

# build_preset NAME [COMMAND...]: configures and builds what the preset's tests need; COMMAND runs the build.
build_preset() {
  local preset=$1 target=all
  shift
  case "$preset" in
    asan) target=unit_tests ;;
    tsan) target=thread_tests ;;
  esac
  [ $quick = no ] || target=unit_tests
  mkdir -p "build/$preset"
  quietly "build/$preset/configure.log" cmake --preset "$preset" -DTRENCADIS_FETCH_CUDA_HEADERS=ON \
    -DTRENCADIS_FETCH_CUDNN_FRONTEND=ON || return 1
  quietly "build/$preset/build.log" "$@" cmake --build "build/$preset" -j "$cores" --target $target
}

# Many tests wait for processes to start and to end. What they leave of the cores builds the next preset: at a priority
# below that of any test, in a process group of its own, which ends with this script.
building=
build_beside_the_tests() {
  local idle=(nice -n 19)
  ! command -v chrt >/dev/null || idle=(chrt --idle 0)
  set -m
  build_preset "$1" "${idle[@]}" &
  building=$!
  set +m
}
trap '[ -z "$building" ] || kill -- "-$building" 2>/dev/null || true' EXIT

# test_preset NAME [NEXT]: builds NAME, unless that is under way, and tests it while NEXT is built.
test_preset() {
  local preset=$1 begin=$SECONDS status=0 filter=()
  [ $quick = no ] || filter=(-L quick)
  echo "== $preset: building"
  if [ -n "$building" ]; then
    wait "$building" || status=$?
    building=
  else
    build_preset "$preset" || status=$?
  fi
  [ $# -eq 1 ] || build_beside_the_tests "$2"
  [ $status -eq 0 ] || return 1
  local built=$((SECONDS - begin))
  echo "== $preset: built after $built s, testing"
  # Twice as many at once as there are cores (tests/script.cmake).
  ctest --preset "$preset" -j $((2 * cores)) --output-junit "$PWD/build/$preset/tests.xml" "${filter[@]}" </dev/null || status=$?
  local tested=$((SECONDS - begin - built))
  printf 'built %d\ntested %d\n' "$built" "$tested" >"build/$preset/seconds.txt"
  parts+=("$preset built after $built s, tested in $tested s")
  return $status
}

# The whole suite of zero/ on the broken program; success means that it fails. A mutant may also hang.
test_mutant() {
  local status=0 program=build/release/bin/mutant_$1
  mkdir -p build/release
  quietly build/release/configure.log cmake --preset release
  quietly build/release/build.log cmake --build build/release -j "$cores" --target "mutant_$1"
  timeout 600 "$program" </dev/null || status=$?
  case $status in
    0) echo "test.sh: the mutant $1 was NOT noticed" && return 1 ;;
    124) echo "test.sh: the mutant $1 was noticed: it hangs" ;;
    *) echo "test.sh: the mutant $1 was noticed (exit code $status)" ;;
  esac
}
if [ -n "$mutant" ]; then
  test_mutant "$mutant"
  exit
fi

failed=()
parts=()
for i in "${!presets[@]}"; do
  test_preset "${presets[@]:i:2}" || failed+=("${presets[i]}")
done
[ ${#parts[@]} -eq 0 ] || printf 'test.sh: %s\n' "${parts[@]}"
if [ ${#failed[@]} -gt 0 ]; then
  echo "test.sh: FAILED in: ${failed[*]} (after $SECONDS s)"
  exit 1
fi
echo "test.sh: all passed in: ${presets[*]} (after $SECONDS s)"
