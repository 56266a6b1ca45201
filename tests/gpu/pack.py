"""What tests/gpu.sh needs of other people's software on a machine without a network: carried there, or found there.

pack() fills a folder here that can be carried: headers, with a CMake configuration file for each library, as if they were
installed under that folder; and NVIDIA's compute-sanitizer as a wheel. nvidia_links() finds there what Python packages of
NVIDIA's have that the CUDA toolkit lacks (cuBLAS, cuDNN, NCCL, NVRTC), and links it into one folder.
"""

import glob
import os
import shutil
import subprocess
import sys
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SANITIZER = "nvidia-cuda-sanitizer-api==13.0.85"  # CUDA 13.0, as the CUDA headers of third_party/cuda_headers.py

# CMake's name of the package -> (the target, the folder of headers under an include folder, where it goes, definitions)
HEADERS = {
    "fmt": ("fmt::fmt", "fmt", "include", ["FMT_HEADER_ONLY"]),
    "doctest": ("doctest::doctest", "doctest", "include", []),
    "nlohmann_json": ("nlohmann_json::nlohmann_json", "nlohmann", "include", []),
    "Eigen3": ("Eigen3::Eigen", "eigen3/Eigen", "include/eigen3", []),
}
CONFIG = """# Headers that were carried here: see tests/gpu/pack.py.
add_library({target} INTERFACE IMPORTED)
set_target_properties({target} PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${{CMAKE_CURRENT_LIST_DIR}}/../../../{folder}"
                                          INTERFACE_COMPILE_DEFINITIONS "{definitions}")
"""


def include_folders():
    prefixes = os.environ.get("CMAKE_PREFIX_PATH", "").replace(";", ":").split(":")
    return [os.path.join(p, "include") for p in prefixes if p] + ["/usr/local/include", "/usr/include"]


def pack(folder):
    """Fills the folder; returns lines that say what is in it. Raises OSError when a library is not installed here."""
    shutil.rmtree(folder, ignore_errors=True)
    said = []
    for package, (target, headers, place, definitions) in HEADERS.items():
        found = next((p for p in (os.path.join(i, headers) for i in include_folders()) if os.path.isdir(p)), None)
        if not found:
            raise OSError(f"no folder {headers} in {include_folders()}: install the package (third_party/install.sh)")
        shutil.copytree(found, os.path.join(folder, place, os.path.basename(headers)))
        config = os.path.join(folder, "lib", "cmake", package, package + "Config.cmake")
        os.makedirs(os.path.dirname(config))
        with open(config, "w", encoding="utf-8") as file:
            file.write(CONFIG.format(target=target, folder=place, definitions=";".join(definitions)))
        said.append(f"{package}: headers from {found}")

    # The front end of cuDNN. Without it, attention by cuDNN is left out there.
    fetched = os.path.join(folder, "fetched")
    done = subprocess.run([sys.executable, os.path.join(ROOT, "third_party", "cuda_headers.py"), fetched,
                           "--cudnn-frontend"], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        shutil.copytree(os.path.join(fetched, "include"), os.path.join(folder, "include"), dirs_exist_ok=True)
        said.append("cuDNN front end: headers from PyPI")
    else:
        said.append(f"cuDNN front end: LEFT OUT ({done.stderr.strip()})")
    shutil.rmtree(fetched, ignore_errors=True)

    wheels = os.path.join(folder, "wheels")
    done = subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
                           "--only-binary=:all:", "--dest", wheels, SANITIZER], capture_output=True, text=True,
                          check=False)
    reason = (done.stderr.strip().splitlines() or ["?"])[-1]
    said.append(f"{SANITIZER}: " + ("a wheel from PyPI" if done.returncode == 0 else f"LEFT OUT ({reason})"))

    size = sum(os.path.getsize(os.path.join(at, name)) for at, _, names in os.walk(folder) for name in names)
    return said + [f"{size / 2**20:.0f} MiB in {os.path.relpath(folder, ROOT)}"]


def sanitizer(folder, work):
    """The command of compute-sanitizer: the machine's, or unpacked from the carried wheel into `work`; None."""
    places = [shutil.which("compute-sanitizer"), "/usr/local/cuda/bin/compute-sanitizer",
              *sorted(glob.glob("/opt/nvidia/*/compute-sanitizer"))]
    for place in places:
        if place and os.access(place, os.X_OK):
            return place
    for wheel in glob.glob(os.path.join(folder, "wheels", "nvidia_cuda_sanitizer_api*.whl")):
        target = os.path.join(work, "sanitizer")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(target)
        for command in glob.glob(os.path.join(target, "**", "bin", "compute-sanitizer"), recursive=True):
            os.chmod(command, 0o755)
            return command
    return None


# (header or None, pattern of the library) of what the build needs beside nvcc and its runtime
NEEDED = [("cublas_v2.h", "libcublas.so*"), ("cudnn_version.h", "libcudnn.so*"), ("nccl.h", "libnccl.so*"),
          (None, "libnvrtc.so*")]


def toolkit():
    """The folder of the CUDA toolkit, or None."""
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    return os.path.dirname(os.path.dirname(os.path.realpath(nvcc))) if os.path.exists(nvcc) else None


def nvidia_links(target):
    """Links what the toolkit lacks into target/include and target/lib; returns the folders of libraries linked."""
    shutil.rmtree(target, ignore_errors=True)
    cuda = toolkit()
    if cuda is None:
        return []
    packages = []
    for path in sys.path:
        packages += sorted(glob.glob(os.path.join(path, "nvidia", "*")))
    folders = []
    for header, library in NEEDED:
        has_header = header is None or any(glob.glob(os.path.join(cuda, at, header)) for at in
                                           ("include", "targets/*/include")) or os.path.exists("/usr/include/" + header)
        has_library = any(glob.glob(os.path.join(at, library)) for at in
                          (cuda + "/lib64", cuda + "/lib", cuda + "/targets/*/lib", "/usr/lib/*-linux-gnu"))
        if has_header and has_library:
            continue
        for package in packages:
            if glob.glob(os.path.join(package, "lib", library)) and (
                    header is None or os.path.exists(os.path.join(package, "include", header))):
                link_folder(os.path.join(package, "include"), os.path.join(target, "include"))
                link_folder(os.path.join(package, "lib"), os.path.join(target, "lib"))
                folders.append(os.path.join(package, "lib"))
                break
    return folders


def link_folder(source, target):
    """Links every entry; libx.so.9 also as libx.so, by which linkers look for it."""
    os.makedirs(target, exist_ok=True)
    for name in os.listdir(source) if os.path.isdir(source) else []:
        names = {name, name.split(".so.")[0] + ".so"} if ".so." in name else {name}
        for link in names:
            path = os.path.join(target, link)
            if not os.path.lexists(path):
                os.symlink(os.path.join(source, name), path)
