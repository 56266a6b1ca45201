"""What tests/gpu.sh reports: numbers from the programs' JSON, MFU, one result as JSON and as text."""

import json
import os
import re
import subprocess
import sys
import tempfile

import pack

# Vendors' peaks of dense arithmetic, TFLOP/s: (pattern of the name, f32 without tensor cores, tf32, bf16). The first that
# fits counts. Not listed means "unknown peak", never a guess.
PEAKS = [
    (r"\bH100 PCIe", 51.2, 378.0, 756.0),
    (r"\bH100 NVL", 60.0, 417.5, 835.0),
    (r"\bH(100|200)\b", 66.9, 494.7, 989.4),
    (r"\bA100\b", 19.5, 156.0, 312.0),
    (r"\bA10\b", 31.2, 62.5, 125.0),
    (r"\bL40S\b", 91.6, 183.0, 362.0),
    (r"\bL4\b", 30.3, 60.0, 121.0),
    (r"\bRTX 4090\b", 82.6, 82.6, 165.2),
    (r"\bRTX 3090\b", 35.6, 35.6, 71.0),
]
BAD = ("failed", "timed out")


def peak(name, arithmetic):
    """FLOP/s of a device, or None."""
    for pattern, *rates in PEAKS:
        if re.search(pattern, name):
            return round(1e12 * rates[["f32", "tf32", "bf16"].index(arithmetic)])
    return None


def batch_for(memory_mib):
    """Sequences of 1024 for a step of GPT-2 124M: state 2 GB, and about 0.95 GB a sequence in f32."""
    return max(1, min(16, int((memory_mib - 4000) / 1300)))


def flops_per_token(parameters, layers, channels, sequence):
    """Forward and backward, 6 for each parameter and 12 L C T for attention (Chowdhery et al., "PaLM", 2022, appendix B)."""
    return 6 * parameters + 12 * layers * channels * sequence


def numbers_of(part, output, gpu):
    """What the program's JSON says, as entries of the part's result."""
    if part in ("memcheck", "racecheck"):
        return {"summary": [line.strip("= ") for line in output.splitlines() if "SUMMARY" in line]}
    if part in ("kernels", "nccl"):
        return {"summary": [line for line in output.splitlines() if line.startswith(("[doctest] test cases", "skipped"))]}
    start = output.find("{")
    if start < 0:
        return {}
    try:
        said = json.loads(output[start:])
    except ValueError:
        return {"why": "its output is not JSON"}
    if part.startswith("gpt2"):
        work = flops_per_token(said["parameters"], said["layers"], said["channels"], said["sequence"])
        best = peak(gpu.get("name", ""), said["arithmetic"])
        said["model_flops_per_sec"] = work * said["tokens_per_sec"]
        said["mfu"] = said["model_flops_per_sec"] / best if best else "unknown peak"
    return {"measured": said}


def commit():
    """Of the sources, where git knows it."""
    done = subprocess.run(["git", "-C", pack.ROOT, "describe", "--always", "--dirty"], capture_output=True, text=True,
                          check=False) if os.path.exists(os.path.join(pack.ROOT, ".git")) else None
    return done.stdout.strip() if done and done.returncode == 0 else "unknown"


def exit_code(result):
    return 1 if any(part["status"] in BAD for part in result["parts"].values()) else 0


def speed(measured):
    mfu = measured["mfu"]
    return (f"{measured['step_ms']:.1f} ms a step of {measured['batch']} x {measured['sequence']} tokens, "
            f"{measured['tokens_per_sec']:.0f} tokens/s, "
            f"{measured['model_flops_per_sec'] / 1e12:.1f} TFLOP/s, MFU "
            + (mfu if isinstance(mfu, str) else f"{mfu:.1%}")
            + f" ({measured['arithmetic']}), peak memory {measured['peak_bytes'] / 2**30:.2f} GiB")


def text(result):
    gpu = result["gpu"]
    lines = [f"gpu.sh: {gpu['name']}, {gpu['memory_mib']} MiB, compute {gpu['compute']}, driver {gpu['driver']}"
             if gpu else "gpu.sh: a rehearsal without a GPU",
             f"sources {result['commit']}, {result['seconds']:.0f} s", ""]
    for name, part in result["parts"].items():
        lines.append(f"{name:<10} {part['status']:<9} {part['seconds']:6.1f} s  {part['why']}".rstrip())
        lines += ["           " + line for line in part.get("configured", []) + part.get("summary", [])]
        measured = part.get("measured", {})
        if "tokens_per_sec" in measured:
            lines.append("           " + speed(measured))
        if "largest_difference" in measured:
            lines.append(f"           losses differ from the CPU's by {measured['largest_difference']:.1e} at most")
        lines += ladder_lines(measured.get("rows", []))
        lines += ["           | " + line for line in part.get("output", [])]
    bad = [name for name, part in result["parts"].items() if part["status"] in BAD]
    lines += ["", "all is well" if not bad else "NOT well: " + ", ".join(bad)]
    return "\n".join(lines)


def ladder_lines(rows):
    lines = []
    for row in rows:
        if row["rate"] is None:
            continue
        unit, scale = {"op/s": ("TFLOP/s", 1e12), "B/s": ("GB/s", 1e9)}[row["unit"]]
        best = [r["rate"] for r in rows if r["reference"] and (r["group"], r["type"]) == (row["group"], row["type"])]
        of = f"  {row['rate'] / best[0]:.0%}" if best and best[0] else ""
        lines.append(f"           {row['group']:<20} {row['rung']:<12} {row['type']:<5} {row['ms']:9.3f} ms "
                     f"{row['rate'] / scale:9.1f} {unit}{of}")
    return lines


def write(folder, result):
    """result.json and result.txt; their paths."""
    paths = [os.path.join(folder, "result.json"), os.path.join(folder, "result.txt")]
    for path, content in zip(paths, (json.dumps(result, indent=1), text(result))):
        with open(path, "w", encoding="utf-8") as file:
            file.write(content + "\n")
    return paths


def self_test(runner_class):
    """Planted programs: one that works, one that fails, one that hangs, and no time left; then numbers and MFU."""
    with tempfile.TemporaryDirectory() as folder:
        runner = runner_class(folder, 60)
        assert runner.run("good", ["sh", "-c", "echo fine"], 10) == (0, "fine\n")
        assert runner.run("bad", ["sh", "-c", "echo why >&2; exit 3"], 10)[0] == 3
        assert runner.run("slow", ["sleep", "60"], 3) == (None, "")
        assert runner.run("absent", ["./no such program"], 10)[0] == 127
        assert runner.run("no gpu", ["sh", "-c", "exit 77"], 10, expected=(77,))[0] == 77
        late = runner_class(folder, 1)
        late.run("late", ["true"], 10)
        statuses = {name: part["status"] for name, part in (runner.results | late.results).items()}
        assert statuses == {"good": "ok", "bad": "failed", "slow": "timed out", "absent": "failed", "no gpu": "ok",
                            "late": "skipped"}, statuses
        assert "why" in runner.results["bad"]["output"]

        h200 = {"name": "NVIDIA H200", "memory_mib": 143771, "compute": "9.0", "driver": "580"}
        step = {"parameters": 124e6, "layers": 12, "channels": 768, "sequence": 1024, "batch": 16, "arithmetic": "tf32",
                "step_ms": 100.0, "tokens_per_sec": 163840.0, "peak_bytes": 2**34, "losses": [10.8, 9.0]}
        part = numbers_of("gpt2_tf32", "noise\n" + json.dumps(step), h200)["measured"]
        # 6 * 124e6 + 12 * 12 * 768 * 1024 = 857246208 operations a token
        assert abs(part["model_flops_per_sec"] - 857246208 * 163840.0) < 1
        assert abs(part["mfu"] - 857246208 * 163840.0 / 494.7e12) < 1e-9
        assert numbers_of("gpt2_f32", json.dumps(step), {"name": "GPU 7"})["measured"]["mfu"] == "unknown peak"
        assert peak("NVIDIA A100-SXM4-80GB", "bf16") == 312e12 and peak("NVIDIA A10", "f32") == 31.2e12
        assert peak("NVIDIA H100 80GB HBM3", "f32") == 66.9e12 and peak("NVIDIA H100 PCIe", "f32") == 51.2e12
        assert (batch_for(0), batch_for(8000), batch_for(143771)) == (1, 3, 16)

        runner.results["gpt2_tf32"] = {"status": "ok", "why": "", "seconds": 1.0, "measured": part}
        result = {"rehearsal": False, "gpu": h200, "seconds": 9.0, "commit": "abc", "parts": runner.results}
        written = text(result)
        for expected in ("NVIDIA H200", "163840 tokens/s", "MFU 28.4% (tf32)", "slow       timed out",
                         "NOT well: bad, slow, absent"):
            assert expected in written, f"no '{expected}' in\n{written}"
        assert exit_code(result) == 1
        with open(write(folder, result)[0], encoding="utf-8") as file:
            assert json.load(file) == result
        only_good = {"parts": {"good": runner.results["good"]}}
        assert exit_code(only_good) == 0
    print("self-test: statuses, numbers and text are as expected", file=sys.stderr)
    return 0
