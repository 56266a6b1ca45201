#!/usr/bin/env bash
# Installs what is missing of third_party/debian-packages.txt, with apt-get.
#
#   install.sh [--without-browser]    the flag leaves out what only some tests need and is large: the browser, and
#                                     the compiler of the fuzz targets
#
# When everything is there it does nothing, says nothing, and needs neither the network nor root. It never asks a
# question. Exit code 1, and a line that says what to do, when something is missing and cannot be installed here.
set -euo pipefail

list="$(dirname "$0")/debian-packages.txt"
packages=$(sed 's/#.*//' "$list" | tr -s '[:space:]' ' ')
if [ "${1:-}" = --without-browser ]; then
  for large in chromium clang libclang-rt-dev; do packages=${packages/ $large / }; done
fi

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "install: this is not a Debian system: install the equivalents of these yourself (going on as if they were there):"
  echo "install:  $packages"
  exit 0
fi

missing=()
for package in $packages; do
  status=$(dpkg-query --show --showformat='${db:Status-Status}\n' "$package" 2>/dev/null || true)
  grep -qx installed <<<"$status" || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then exit 0; fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "install: missing packages, and neither root nor sudo to install them. Have an administrator run:" >&2
    echo "install:   apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi

# A service that updates packages in the background may hold dpkg's lock for a while: wait for it.
apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300)
log=$(mktemp)
trap 'rm -f "$log"' EXIT

run() {  # shows the output of a command only if it fails
  if "$@" </dev/null >"$log" 2>&1; then return 0; fi
  tail -n 20 "$log" >&2
  return 1
}

echo "install: ${missing[*]}"
# An update that fails (a mirror away, no network) need not matter: the lists that are there may do.
run "${apt[@]}" update || echo "install: the package lists could not be updated; trying with the old ones" >&2
if ! run "${apt[@]}" install --no-install-recommends "${missing[@]}"; then
  echo "install: apt-get could not install: ${missing[*]}. Is the network there? Its last lines are above." >&2
  exit 1
fi
