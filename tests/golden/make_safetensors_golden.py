#!/usr/bin/env python3
"""Writes tests/golden/small.safetensors with the reference package: pip install safetensors numpy (written with 0.8.0).

    make_safetensors_golden.py [FILE]      default: small.safetensors beside this script

tests/zero/checkpoint/test_safetensors.cpp knows what it holds: element i of each tensor is i/2 - 1 where the type has
fractions, else 3i. The reference lays the tensors out by falling alignment, then by name.
"""

import os
import sys

import numpy
import safetensors


def main():
    path = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                                              "small.safetensors")
    halves = lambda count: numpy.arange(count) / 2 - 1
    threes = lambda count: numpy.arange(count) * 3
    bfloat16 = (halves(3).astype("<f4").view("<u4") >> 16).astype("<u2")  # exact: these have few digits
    tensors = {
        "h.0.ln_1.weight": ("float32", halves(7).astype("<f4")),
        "wte.weight": ("float32", halves(15).astype("<f4").reshape(5, 3)),
        "half": ("float16", halves(5).astype("<f2")),
        "brain": ("bfloat16", bfloat16),
        "double": ("float64", halves(2).astype("<f8").reshape(1, 2, 1)),
        "long": ("int64", threes(3).astype("<i8")),
        "byte": ("uint8", threes(3).astype("u1")),
        "mask": ("bool", numpy.array([[True, False], [False, True]])),
        "scalar": ("float32", numpy.array(0.25, "<f4")),
        "empty": ("float32", numpy.zeros((0, 4), "<f4")),
        "größe \"µ\"\n": ("int32", threes(2).astype("<i4")),
    }
    # Beside safetensors.numpy.save(), which does the same, because NumPy has no bfloat16.
    described = {name: safetensors.TensorSpec(dtype=dtype, shape=array.shape, data_ptr=array.ctypes.data,
                                              data_len=array.nbytes)
                 for name, (dtype, array) in tensors.items()}
    with open(path, "wb") as file:
        file.write(safetensors.serialize(described, {"format": "pt"}))


if __name__ == "__main__":
    main()
