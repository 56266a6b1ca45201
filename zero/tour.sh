#!/usr/bin/env bash
# What the ZeRO stages trade, in two minutes: the same small training in each of them, side by side. See --help.
set -euo pipefail
cd "$(dirname "$0")/.."

ranks=2 steps=40 out=out/tour program=build/release/bin/trencadis

help() {
  cat <<TEXT
Usage: zero/tour.sh [--np N] [--steps N] [--out-dir DIR] [--program FILE] [flags of trencadis train]

Trains one small GPT in ZeRO stages 0, 1, 2 and 3, each on $ranks ranks for $steps steps, and shows what they have in common
(loss and digest: the same bits) and what they trade (memory, traffic, time): a table, and a page with the four memory
curves over the same axis, DIR/tour.html. Builds the trainer if it is not there.

  --np N          ranks (default $ranks)
  --steps N       steps of each run (default $steps)
  --out-dir DIR   where the runs and the page go (default $out)
  --program FILE  trencadis (default $program)
TEXT
}

flags=()
while [ $# -gt 0 ]; do
  case "$1" in
    -h | --help) help && exit 0 ;;
    --np | -np) ranks=${2:?"tour.sh: $1 needs a number"} && shift ;;
    --steps) steps=${2:?"tour.sh: $1 needs a number"} && shift ;;
    --out-dir | -o) out=${2:?"tour.sh: $1 needs a folder"} && shift ;;
    --program) program=${2:?"tour.sh: $1 needs a file"} && shift ;;
    *) flags+=("$1") ;;
  esac
  shift
done

if [ ! -x "$program" ]; then
  third_party/install.sh --without-browser
  echo "== building $program (a few minutes the first time)"
  mkdir -p build/release
  log=build/release/tour.log
  if ! { cmake --preset release && cmake --build build/release -j "$(nproc)" --target trencadis; } >$log 2>&1 </dev/null; then
    tail -n 40 $log >&2
    echo "tour.sh: the build failed (all of its output: $log)" >&2
    exit 1
  fi
fi
# Open MPI refuses to start as root without these two.
if [ "$(id -u)" -eq 0 ]; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi

# Few tokens a step and many parameters: what the stages shard is then most of the memory, as in large models.
model=(--n-layer 12 --n-head 6 --n-embd 192 --block-size 64 --batch-size 2 --max-steps "$steps"
       --eval-interval 0 --eval-steps 4 --sample-tokens 120 --save-interval off --report off --progress off --digest)
echo "== stages 0 to 3 on $ranks ranks: trencadis train ${model[*]} ${flags[*]}"
folders=()
mkdir -p "$out"
for stage in 0 1 2 3; do
  folder=$out/stage$stage
  folders+=("$folder")
  begin=$SECONDS
  mpirun -np "$ranks" --oversubscribe --bind-to none "$program" train --zero-stage $stage "${model[@]}" "${flags[@]}" \
    --out-dir "$folder" </dev/null >"$folder.log" 2>&1 || { cat "$folder.log" >&2; exit 1; }
  echo "   stage $stage: $((SECONDS - begin)) s"
done
echo
"$program" report "${folders[@]}" -o "$out/tour.html" | tee "$out/tour.txt"
digests=$(grep -h '^digest ' "$out"/stage?.log | sort -u | wc -l)
echo
if [ "$digests" -eq 1 ]; then
  echo "One digest: the four runs ended with the same parameters, to the bit. What differs is where bytes wait:"
else
  echo "The digests differ: with several micro-batches a step (--grad-accum) stages 0 and 1 add in another order."
fi
page=$(cd "$out" && pwd)/tour.html
cat <<TEXT
  0  every rank holds all parameters (P), gradients (G) and optimizer state (O)
  1  O is sharded: each rank steps its part, and parts are gathered; nothing more is sent
  2  G too: a unit's gradients are reduced and freed as soon as they are complete
  3  P too: a unit is gathered before it is used and freed after: half as much again is sent
Open $page in a browser; what the stages are: zero/README.md
TEXT
