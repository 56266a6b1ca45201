#!/usr/bin/env python3
"""Makes ops.txt: what the general operations (autograd/ops/tensor_ops.h) must compute, by PyTorch in double precision.

    python3 make_ops_golden.py            writes the file beside this script
    python3 make_ops_golden.py --check    computes it again and compares (tolerance 1e-6 of each tensor's largest)

Needs PyTorch; the test only reads the file. For every case a line with its name, and then a line for each tensor

    in      an input: values are exact in float32
    out     the result
    grad    the gradient of an input, in the order of the inputs, when the result is seeded with cos(1), cos(2), ...

each as   KIND SIZES : VALUES   with the sizes separated by spaces, none for a scalar. The names say what
tests/autograd/test_ops_golden.cpp computes; axes, parts and shapes stand in both.
"""

import math
import os
import sys

import torch
import torch.nn.functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
PATH = os.path.join(HERE, "ops.txt")

# name -> (function, shapes of the inputs, lowest and highest value)
CASES = {
    "add": (lambda a, b: a + b, [(2, 1, 3), (4, 1)], -2, 2),
    "sub": (lambda a, b: a - b, [(3,), (2, 3)], -2, 2),
    "mul": (lambda a, b: a * b, [(5, 1), (1, 7)], -2, 2),
    "div": (lambda a, b: a / b, [(2, 3), ()], 0.5, 2),
    "scalar": (lambda x: (2.5 - x * 3) / 4 + 1 / x, [(7,)], 0.5, 2),
    "square": (lambda x: x * x, [(3, 5)], -2, 2),
    "exp": (torch.exp, [(3, 7)], -4, 4),
    "log": (torch.log, [(3, 7)], 0.01, 4),
    "sqrt": (torch.sqrt, [(3, 7)], 0.01, 4),
    "tanh": (torch.tanh, [(3, 7)], -4, 4),
    "sigmoid": (torch.sigmoid, [(3, 7)], -6, 6),
    "relu": (torch.relu, [(3, 7)], -2, 2),
    "silu": (F.silu, [(3, 7)], -6, 6),
    "gelu": (lambda x: F.gelu(x, approximate="tanh"), [(3, 7)], -5, 5),
    "sum": (torch.sum, [(2, 3, 5)], -2, 2),
    "sum_0": (lambda x: x.sum(0), [(5, 3)], -2, 2),
    "sum_1_keep": (lambda x: x.sum(1, keepdim=True), [(2, 3, 5)], -2, 2),
    "mean": (torch.mean, [(2, 3, 5)], -2, 2),
    "mean_last": (lambda x: x.mean(-1), [(2, 3, 5)], -2, 2),
    "max": (torch.amax, [(2, 3, 5)], -2, 2),
    "max_1": (lambda x: x.max(1).values, [(2, 3, 5)], -2, 2),
    "max_last_keep": (lambda x: x.max(-1, keepdim=True).values, [(4, 5)], -2, 2),
    "softmax_last": (lambda x: x.softmax(-1), [(3, 7)], -4, 4),
    "softmax_1": (lambda x: x.softmax(1), [(2, 5, 3)], -4, 4),
    "log_softmax_last": (lambda x: x.log_softmax(-1), [(3, 7)], -4, 4),
    "log_softmax_0": (lambda x: x.log_softmax(0), [(5, 3)], -4, 4),
    "reshape": (lambda x: x.reshape(4, -1), [(2, 3, 2)], -2, 2),
    "transpose": (lambda x: x.transpose(0, -1), [(2, 3, 4)], -2, 2),
    "permute": (lambda x: x.permute(2, 0, 1), [(2, 3, 4)], -2, 2),
    "slice": (lambda x: x[:, 1:-1], [(2, 5, 3)], -2, 2),
    "concat": (lambda a, b: torch.cat([a, b, a], 1), [(2, 3, 2), (2, 1, 2)], -2, 2),
    "matmul": (lambda a, b: a @ b, [(3, 5), (5, 2)], -2, 2),
    "matmul_batch": (lambda a, b: a @ b, [(2, 1, 3, 4), (5, 4, 2)], -2, 2),
    "matmul_weight": (lambda a, b: a @ b.mT, [(2, 3, 4), (5, 4)], -2, 2),
    "matmul_both": (lambda a, b: a.mT @ b.mT, [(3, 4, 3), (1, 2, 4)], -2, 2),
    "attention": (lambda q, k, v: ((q @ k.mT) / math.sqrt(4)).softmax(-1) @ v, [(2, 3, 4), (2, 5, 4), (2, 5, 4)], -2, 2),
}


def make():
    """[(name, [(kind, sizes, values)])]"""
    generator = torch.Generator().manual_seed(18)
    cases = []
    for name, (function, shapes, low, high) in CASES.items():
        inputs = [(low + (high - low) * torch.rand(shape, generator=generator, dtype=torch.float64)).float().double()
                  .requires_grad_() for shape in shapes]
        out = function(*inputs)
        seed = torch.cos(torch.arange(1, out.numel() + 1, dtype=torch.float64)).float().double()
        gradients = torch.autograd.grad(out, inputs, seed.reshape(out.shape))
        cases.append((name, [(kind, tuple(t.shape), t.detach().flatten().tolist())
                             for kind, tensors in (("in", inputs), ("out", [out]), ("grad", gradients))
                             for t in tensors]))
    return cases


def read(path):
    cases = []
    with open(path, encoding="utf-8") as file:
        for line in file:
            head, colon, values = line.strip().partition(":")
            if not colon:
                cases.append((head, []))
            else:
                kind, *sizes = head.split()
                cases[-1][1].append((kind, tuple(map(int, sizes)), list(map(float, values.split()))))
    return cases


def main():
    cases = make()
    if "--check" not in sys.argv:
        with open(PATH, "w", encoding="utf-8") as file:
            for name, tensors in cases:
                file.write(name + "\n")
                for kind, sizes, values in tensors:
                    file.write(" ".join([kind, *map(str, sizes), ":", *(f"{v:.9g}" for v in values)]) + "\n")
        return
    committed = read(PATH)
    wrong = [name for name, _ in cases] != [name for name, _ in committed]
    for (name, made), (_, stored) in zip(cases, committed):
        for (kind, sizes, values), (stored_kind, stored_sizes, stored_values) in zip(made, stored, strict=True):
            largest = max([abs(v) for v in values] + [1e-30])
            good = (kind, sizes) == (stored_kind, stored_sizes) and len(values) == len(stored_values) and all(
                abs(a - b) <= 1e-6 * largest for a, b in zip(values, stored_values))
            if not good:
                print(f"{name}: {kind} {sizes} differs")
                wrong = True
    print("ops.txt differs" if wrong else f"ops.txt: {len(cases)} cases, as PyTorch computes them")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
