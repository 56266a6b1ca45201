#!/usr/bin/env bash
# From a fresh clone to a GPT that learns Shakespeare on two data-parallel ranks. See --help.
set -euo pipefail
cd "$(dirname "$0")"

steps=1500  # of the preset `tiny`: about 90 seconds on two cores
ranks=2
out=out/quickstart

help() {
  cat <<TEXT
Usage: ./quickstart.sh [--np N] [flags of trencadis train]

1. installs the Debian packages that are missing (third_party/debian-packages.txt)
2. builds the program: build/release/bin/trencadis
3. fetches a text to learn: the works of Shakespeare, 5 MB, into data/ (without a network: this project's own sources)
4. trains a small GPT on it under mpirun for about 90 seconds, and lets it write a sample

  --np N    ranks, that is, processes that train together (default $ranks)
  --help    this text

Everything else is passed on to trencadis train, after the flags given here: --device cpu --preset tiny
--max-steps $steps --out-dir $out.
Its own help: build/release/bin/trencadis train --help
TEXT
}

arguments=()
while [ $# -gt 0 ]; do
  case "$1" in
    --np | -np)
      if ! [[ "${2:-}" =~ ^[1-9][0-9]*$ ]]; then
        echo "quickstart.sh: $1 needs the number of ranks, 1 or more" >&2
        exit 2
      fi
      ranks=$2
      shift
      ;;
    --out-dir | --out_dir | -o)
      if [ -z "${2:-}" ]; then
        echo "quickstart.sh: $1 needs a folder" >&2
        exit 2
      fi
      out=$2
      shift
      ;;
    --out-dir=* | --out_dir=*)
      out=${1#*=}
      if [ -z "$out" ]; then
        echo "quickstart.sh: --out-dir= needs a folder" >&2
        exit 2
      fi
      ;;
    -h | --help) help && exit 0 ;;
    *) arguments+=("$1") ;;
  esac
  shift
done

third_party/install.sh --without-browser

echo "== building build/release/bin/trencadis (a few minutes the first time)"
begin=$SECONDS
mkdir -p build/release
log=build/release/quickstart.log
# The CPU's program needs nothing of NVIDIA's: what is not here is not fetched (test.sh fetches it).
fetch=()
[ -e build/release/CMakeCache.txt ] || fetch=(-DTRENCADIS_FETCH_CUDA_HEADERS=OFF -DTRENCADIS_FETCH_CUDNN_FRONTEND=OFF)
if ! { cmake --preset release "${fetch[@]}" && cmake --build build/release -j "$(nproc)" --target trencadis; } >$log 2>&1 </dev/null; then
  tail -n 60 $log >&2
  echo "quickstart.sh: the build failed (all of its output: $log)" >&2
  exit 1
fi
echo "== built in $((SECONDS - begin)) s"

python3 third_party/corpus.py || echo "corpus: could not be fetched; training on this project's own sources instead"

# Open MPI refuses to start as root without these two.
if [ "$(id -u)" -eq 0 ]; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
# --oversubscribe: also with fewer cores than ranks. --bind-to none: the trainer shares the cores out among its ranks.
command=(mpirun -np "$ranks" --oversubscribe --bind-to none build/release/bin/trencadis train
         --device cpu --preset tiny --max-steps "$steps" --out-dir "$out" "${arguments[@]}")
echo "== ${command[*]}"
"${command[@]}" </dev/null

echo
echo "== done, $SECONDS s in all. Written: $(cd "$out" 2>/dev/null && find "$PWD" -maxdepth 1 -mindepth 1 | sort | tr '\n' ' ')"
echo "== the run in pictures, in any browser: $(cd "$out" 2>/dev/null && pwd)/report.html"
echo "== next, what the ZeRO stages trade, in two minutes: zero/tour.sh"
