#!/usr/bin/env python3
"""Proves that every file includes only what its folder may know (the table below), and a few rules of style.

    check_includes.py [ROOT]        the tree to check; default: this project
    check_includes.py --self-test   plants violations and demands that each is found

Rules, for C++ and CUDA sources (.h .cpp .cu .cuh):
  includes   a project file is included with quotes and its path from the root; only folders that FOLDERS allows
  vendors    headers of other people's libraries only where VENDORS allows
  length     500 lines at most (scripts too)
  opening    the file opens with a comment that says what it is; x.cpp beside x.h may leave that to x.h
  tabs       none
"""

import posixpath
import re

from sources import CODE, SCRIPTS, files, main, read

MAX_LINES = 500

# folder -> the folders that it may include, beside itself and what they may include (the arrow is transitive).
# A folder that is not listed follows its longest listed prefix. "*": everything.
FOLDERS = {
    "runtime": [],
    "autograd": ["runtime"],
    "layers": ["autograd"],
    "optim": ["runtime"],
    "dist": ["runtime"],
    "zero": ["layers", "optim", "dist"],
    "models": [],  # no sources but these, and examples
    "models/language_model.h": ["layers"],
    "models/family.h": ["models/language_model.h"],
    "models/gpt": ["models/family.h"],
    "models/families.h": ["models/family.h"],
    "models/families.cpp": ["models/families.h", "models/gpt"],  # the table, which alone names them all
    "models/data": ["layers"],
    "models/options": ["runtime"],
    "models/checkpoints": ["zero", "models/language_model.h"],
    "models/hugging_face": ["zero", "models/families.h"],
    "models/planner": ["zero", "models/families.h"],
    "models/report": ["zero", "models/language_model.h"],
    "models/trainer": ["zero", "models/data", "models/options", "models/checkpoints", "models/hugging_face",
                       "models/report"],
    "models/programs": ["*"],
    "tests": ["*"],
}
# The parts that implement an interface for one device or transport are known to nobody below the trainer: whoever draws
# them in loses the choice. A backend may know another one of the same folder (dist/nccl starts over dist/mpi).
BACKENDS = ["runtime/blas", "runtime/cpu", "runtime/cuda", "runtime/cudasim", "dist/local", "dist/thread", "dist/mpi",
            "dist/nccl", "dist/ncclsim"]
# Pairs beyond that rule.
BACKEND_USES = {
    "dist/nccl": ["runtime/cuda", "runtime/cudasim"],
    "dist/ncclsim": ["runtime/cuda", "runtime/cudasim"],
    "dist/mpi": ["runtime/cuda"],
}
# An example program at the top of a folder (zero/example_mlp.cpp) is a user of everything, as a test is.
EXAMPLES = re.compile(r"(^|/)example_[^/]*\.(cpp|cu)$")

UPWARD_FROM_ZERO = ["zero", "models", "tests"]
# Kernels include "device/x.h": nvcc takes it from the first of these, the simulator's build from the second.
DEVICE_TWINS = ["runtime/cuda/gpu", "runtime/cudasim"]
DEVICE_USERS = ["runtime/cuda", "runtime/cudasim", "tests/runtime"]
CUDA_FOLDERS = ["runtime/cuda", "runtime/cudasim", "dist/nccl", "dist/ncclsim", "tests"]
# (pattern of the header, what it is, folders that may include it). Anything in <> that matches none must be a header of
# the standard library or of the operating system.
VENDORS = [
    (r"mpi(-ext)?\.h$", "MPI", ["dist/mpi", "dist/nccl", "dist/ncclsim", "tests"]),
    (r"nccl\w*\.h$", "NCCL", ["dist/nccl", "dist/ncclsim", "tests"]),
    (r"(cuda|cublas|cudnn|curand|nvtx|nvToolsExt|mma|vector_types|driver_types|device_launch|cooperative_groups)"
     r"[\w.]*(\.h|\.hpp)?$|^(cuda|cub|thrust|cudnn_frontend\w*|cooperative_groups)/", "CUDA", CUDA_FOLDERS),
    (r"CLI/", "CLI11", UPWARD_FROM_ZERO),
    (r"nlohmann/", "nlohmann-json", UPWARD_FROM_ZERO),
    (r"(Eigen|unsupported/Eigen)/", "Eigen", ["runtime/blas"]),
    (r"(cblas|openblas_config|lapacke?|f77blas)\.h$", "OpenBLAS", ["runtime/blas"]),
    (r"doctest/|doctest\.h$", "doctest", ["tests"]),
    (r"fmt/", "fmt", ["runtime", "autograd", "layers", "optim", "dist", "zero", "models", "tests"]),
]
# C headers of the compiler and of POSIX that are used; the standard library's own have no dot.
SYSTEM = re.compile(r"(sys|netinet|arpa|linux|net|sanitizer)/\w+\.h$|arm_acle\.h$|"
                    r"(unistd|fcntl|signal|pthread|sched|dlfcn|errno|poll|dirent|ucontext|execinfo|immintrin|arm_neon|"
                    r"cpuid|termios|spawn|time|stdint|stddef|stdio|stdlib|string|math|dirent|glob|ucontext|cxxabi|elf|"
                    r"link)\.h$")

INCLUDE = re.compile(r'^\s*#\s*include(?:_next)?\s*(?:"([^"]*)"|<([^>]*)>|(\S.*))')


def under(path, folder):
    return path == folder or path.startswith(folder + "/")


def listed_folder(path):
    """The entry of FOLDERS that a file follows, or None."""
    matches = [folder for folder in FOLDERS if under(path, folder)]
    return max(matches, key=len) if matches else None


def reachable(folder):
    seen, todo = set(), [folder]
    while todo:
        current = todo.pop()
        if current not in seen:
            seen.add(current)
            todo += FOLDERS.get(current, [])
    return seen


def backend_of(path):
    return next((backend for backend in BACKENDS if under(path, backend)), None)


def may_include(path, target):
    """Whether the file `path` may include the project file `target`."""
    folder, other = listed_folder(path), listed_folder(target)
    if folder is None or other is None:
        return False
    if EXAMPLES.search(path) or "*" in FOLDERS[folder]:
        return not (folder.startswith("models") and other == "tests")
    if other not in reachable(folder):
        return False
    backend, other_backend = backend_of(path), backend_of(target)
    if other_backend is None or other_backend == backend:
        return True
    return backend is not None and (other_backend.split("/")[0] == backend.split("/")[0]
                                    or other_backend in BACKEND_USES.get(backend, []))


def includes_of(text):
    """(line number, name, whether in quotes) of each include; comments are left out."""
    text = re.sub(r"/\*.*?\*/", lambda match: "\n" * match.group().count("\n"), text, flags=re.DOTALL)
    for number, line in enumerate(text.split("\n"), 1):
        match = INCLUDE.match(line)
        if match:
            quoted, angled, macro = match.groups()
            yield number, quoted or angled or macro, quoted is not None


def check_include(path, name, quoted, known):
    """What is wrong with one include, or None."""
    if quoted or name in known:
        target = name
        if name.startswith("device/") and any(under(path, folder) for folder in DEVICE_USERS):
            missing = [f"{twin}/{name}" for twin in DEVICE_TWINS if f"{twin}/{name}" not in known]
            return f"there is no {missing[0]}" if missing else None
        if under(path, "tests"):  # may also name a neighbour: by the path from itself, or from tests/
            places = [name, posixpath.normpath(posixpath.join(posixpath.dirname(path), name)), "tests/" + name]
            target = next((place for place in places if place in known), name)
        if not quoted:
            return f"include project file {name} in quotes"
        if target not in known:
            return f"include \"{name}\" is no path from the root of the project"
        if not may_include(path, target):
            return f"{listed_folder(path) or path} may not include {name}"
        return None
    for pattern, vendor, allowed in VENDORS:
        if re.match(pattern, name):
            if any(under(path, folder) for folder in allowed):
                return None
            return f"{vendor} header <{name}> is only for {', '.join(allowed)}"
    if re.fullmatch(r"[a-z_0-9]+", name) or SYSTEM.match(name):
        return None
    return f"unknown header <{name}>: say in {__file__.rsplit('/', 1)[-1]} who may include it"


def check(root):
    complaints = []
    paths = files(root)
    known = {path for path in paths if path.endswith(CODE)}
    for path in paths:
        if not path.endswith(CODE + SCRIPTS):
            continue
        text = read(root, path)
        lines = text.count("\n")
        if lines > MAX_LINES:
            complaints.append(f"{path}:{MAX_LINES + 1}: {lines} lines, {MAX_LINES} at most")
        if path not in known:
            continue
        header = re.sub(r"\.\w+$", ".h", path)
        if not re.match(r"//|/\*", text) and (header == path or header not in known):
            complaints.append(f"{path}:1: open with a comment: what this file is, why, which invariants it keeps")
        if "\t" in text:
            complaints.append(f"{path}:{text[:text.index(chr(9))].count(chr(10)) + 1}: a tab")
        for number, name, quoted in includes_of(text):
            complaint = check_include(path, name, quoted, known)
            if complaint:
                complaints.append(f"{path}:{number}: {complaint}")
    return complaints


def planted():
    """Trees with one violation each, and words that the complaint must hold."""
    base = {"runtime/tensor.h": "// t\n", "runtime/blas/gemm.h": "// g\n", "autograd/engine.h": "// e\n",
            "layers/module.h": "// m\n", "optim/adamw.h": "// a\n", "dist/communicator.h": "// c\n",
            "dist/mpi/mpi.h": "// m\n", "zero/engine.h": "// z\n", "models/gpt/gpt.h": "// g\n",
            "models/language_model.h": "// l\n", "models/options/options.h": "// o\n", "models/data/dataset.h": "// d\n",
            "models/trainer/trainer.h": "// t\n", "tests/helper.h": "// h\n"}

    def tree(path, body, opening="// x\n"):
        return {**base, path: opening + body}

    def project(path, target):
        return tree(path, f'#include "{target}"\n')

    def vendor(path, header):
        return tree(path, f"#include <{header}>\n")

    def bad(path, *words):
        return [path + ":2", *words]

    return [
        (base, None),
        (project("autograd/x.cpp", "runtime/tensor.h"), None),
        (project("layers/x.cpp", "runtime/tensor.h"), None),
        (project("runtime/cpu/x.cpp", "runtime/tensor.h"), None),
        (project("zero/x.cpp", "optim/adamw.h"), None),
        (project("models/programs/train_command.cpp", "dist/mpi/mpi.h"), None),
        (project("tests/zero/x.cpp", "runtime/blas/gemm.h"), None),
        (project("tests/zero/x.cpp", "helper.h"), None),
        (project("tests/zero/x.cpp", "../helper.h"), None),
        (project("zero/example_mlp.cpp", "dist/mpi/mpi.h"), None),
        (tree("runtime/x.cpp", '// #include "zero/engine.h"\n/*\n#include "zero/engine.h"\n*/\n'), None),
        (vendor("runtime/x.cpp", "vector"), None),
        (vendor("runtime/x.cpp", "sys/mman.h"), None),
        (vendor("runtime/x.cpp", "fmt/format.h"), None),
        (vendor("runtime/blas/x.cpp", "Eigen/Core"), None),
        (vendor("dist/mpi/x.cpp", "mpi.h"), None),
        (vendor("runtime/cuda/x.cu", "cuda_runtime.h"), None),
        (vendor("runtime/cudasim/x.h", "cuda_bf16.h"), None),
        ({**project("runtime/cuda/x.cu", "device/mma.h"), "runtime/cuda/gpu/device/mma.h": "// m\n",
          "runtime/cudasim/device/mma.h": "// m\n"}, None),
        (project("runtime/cuda/x.cu", "device/mma.h"), bad("runtime/cuda/x.cu", "there is no runtime/cuda/gpu/device/mma.h")),
        (project("runtime/x.cpp", "autograd/engine.h"), bad("runtime/x.cpp", "may not include")),
        (project("runtime/cpu/x.cpp", "layers/module.h"), bad("runtime/cpu/x.cpp", "may not include")),
        (project("optim/x.cpp", "autograd/engine.h"), bad("optim/x.cpp", "may not include")),
        (project("layers/x.cpp", "optim/adamw.h"), bad("layers/x.cpp", "may not include")),
        (project("dist/x.h", "autograd/engine.h"), bad("dist/x.h", "may not include")),
        (project("zero/x.cpp", "models/gpt/gpt.h"), bad("zero/x.cpp", "may not include")),
        (project("zero/x.cpp", "dist/mpi/mpi.h"), bad("zero/x.cpp", "may not include")),
        (project("layers/x.cpp", "runtime/blas/gemm.h"), bad("layers/x.cpp", "may not include")),
        (project("models/gpt/x.cpp", "zero/engine.h"), bad("models/gpt/x.cpp", "may not include")),
        (project("models/families.cpp", "models/gpt/gpt.h"), None),
        (project("models/example_x.cpp", "models/gpt/gpt.h"), None),
        (project("models/example_x.cpp", "tests/helper.h"), bad("models/example_x.cpp", "may not include")),
        (project("models/x.cpp", "models/gpt/gpt.h"), bad("models/x.cpp", "may not include")),
        (project("models/hugging_face/x.cpp", "models/language_model.h"), None),
        (project("models/trainer/x.cpp", "models/options/options.h"), None),
        *((project(f"models/{folder}/x.cpp", target), bad(f"models/{folder}/x.cpp", "may not include"))
          for folder, target in [
              ("gpt", "models/trainer/trainer.h"), ("gpt", "models/options/options.h"), ("gpt", "models/data/dataset.h"),
              ("options", "models/data/dataset.h"), ("options", "models/gpt/gpt.h"), ("data", "models/options/options.h"),
              ("checkpoints", "models/options/options.h"), ("checkpoints", "models/gpt/gpt.h"),
              ("hugging_face", "models/gpt/gpt.h"), ("hugging_face", "models/trainer/trainer.h"),
              ("planner", "models/gpt/gpt.h"), ("report", "models/options/options.h"), ("trainer", "models/gpt/gpt.h"),
              ("report", "models/trainer/trainer.h"), ("trainer", "dist/mpi/mpi.h")]),
        (project("models/programs/train_command.cpp", "tests/helper.h"), bad("models/programs/train_command.cpp", "may not include")),
        (project("runtime/x.cpp", "tensor.h"), bad("runtime/x.cpp", "no path from the root")),
        (vendor("runtime/x.cpp", "runtime/tensor.h"), bad("runtime/x.cpp", "in quotes")),
        (vendor("zero/x.cpp", "mpi.h"), bad("zero/x.cpp", "MPI")),
        (vendor("dist/mpi/x.cpp", "nccl.h"), bad("dist/mpi/x.cpp", "NCCL")),
        (vendor("zero/x.cpp", "cuda_runtime.h"), bad("zero/x.cpp", "CUDA")),
        (vendor("dist/mpi/x.cpp", "cuda_bf16.h"), bad("dist/mpi/x.cpp", "CUDA")),
        (vendor("layers/x.cpp", "Eigen/Core"), bad("layers/x.cpp", "Eigen")),
        (vendor("runtime/x.cpp", "cblas.h"), bad("runtime/x.cpp", "OpenBLAS")),
        (vendor("optim/x.cpp", "nlohmann/json.hpp"), bad("optim/x.cpp", "nlohmann")),
        (vendor("dist/x.cpp", "CLI/CLI.hpp"), bad("dist/x.cpp", "CLI11")),
        (vendor("runtime/x.cpp", "boost/any.hpp"), bad("runtime/x.cpp", "unknown header")),
        (tree("runtime/x.cpp", "\n" * MAX_LINES), ["runtime/x.cpp:501", "at most"]),
        (tree("runtime/tensor.cpp", "", opening='#include "runtime/tensor.h"\n'), None),
        (tree("runtime/x.cpp", "", opening="#pragma once\n"), ["runtime/x.cpp:1", "open with a comment"]),
        (tree("runtime/tensor.h", "", opening="#pragma once\n"), ["runtime/tensor.h:1", "open with a comment"]),
        (tree("runtime/x.cpp", "int a;\n\tint b;\n"), ["runtime/x.cpp:3", "a tab"]),
    ]


if __name__ == "__main__":
    main(__doc__, check, planted())
