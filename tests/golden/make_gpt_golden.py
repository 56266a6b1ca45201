#!/usr/bin/env python3
"""Makes gpt_small.json and gpt_small.bin: what a small GPT-2 must compute, by PyTorch in double precision.

    python3 make_gpt_golden.py            writes both files beside this script
    python3 make_gpt_golden.py --check    computes them again and compares (tolerance 1e-6 of each tensor's largest)

Needs PyTorch; the tests only read the files. For each of two models, `tied` and `untied`, the JSON holds

    config      n_layer, n_head, n_embd, block_size (positions, more than T), vocab_size, tied, layer_norm_eps
    ids         (B,T)
    targets     (B,T), -1: ignored
    loss        the mean over the targets that are not ignored, and valid_targets, their number
    grad_norm   of the gradient of that mean, over all parameters, before clipping
    optimizer   AdamW: beta1, beta2, eps, weight_decay (matrices only), grad_clip (gradients are multiplied by
                min(1, grad_clip / grad_norm)), lr of each step
    steps       for each step, on the same batch: loss and grad_norm before it, lr
    tensors     name -> shape and offset, in floats, into the .bin: little-endian float32, row-major
                  param/NAME  the weights, exact      grad/NAME   gradient of the mean loss
                  after/NAME  after the last step     logits      (B,T,V)

The gradient of a key's bias (the middle third of h.*.attn.c_attn.bias) is zero in exact arithmetic: softmax does not see
a constant. What is computed there is rounding noise; Adam may turn float32's noise into steps of a part of lr.
"""

import json
import os
import sys

import numpy as np
import torch

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "bench"))
from torch_gpt import GPT, Config, parameter_groups  # noqa: E402

# Odd sizes throughout: head size 7, a vocabulary and a T that are prime, fewer heads than a vector has lanes.
MODELS = {
    "tied": (Config(n_layer=2, n_head=3, n_embd=21, block_size=13, vocab_size=29, tied=True), (2, 11)),
    "untied": (Config(n_layer=1, n_head=2, n_embd=10, block_size=5, vocab_size=17, tied=False), (3, 5)),
}
OPTIMIZER = {"beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1, "lr": [1e-3, 3e-3, 2e-3]}


def draw_weights(model, generator):
    """Larger than GPT-2's own start, and no vector zero or one, so that every term of every formula counts."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            if parameter.dim() >= 2:
                value = 0.15 * noise
            elif ".ln_" in f".{name}" and name.endswith("weight"):
                value = 1 + 0.1 * noise
            else:
                value = 0.05 * noise
            parameter.copy_(value.float().double())


def make(config, batch, seed):
    """(description, tensors) of one model."""
    generator = torch.Generator().manual_seed(seed)
    model = GPT(config).double()
    draw_weights(model, generator)
    ids = torch.randint(config.vocab_size, batch, generator=generator)
    targets = torch.randint(config.vocab_size, batch, generator=generator)
    targets[torch.rand(batch, generator=generator) < 0.2] = -1
    tensors = {f"param/{name}": p.detach().clone() for name, p in model.named_parameters()}
    tensors["logits"] = model.logits(ids).detach()

    groups = parameter_groups(model, OPTIMIZER["weight_decay"])
    optimizer = torch.optim.AdamW(groups, lr=0.0, betas=(OPTIMIZER["beta1"], OPTIMIZER["beta2"]), eps=OPTIMIZER["eps"])
    steps, grad_clip = [], None
    for lr in OPTIMIZER["lr"]:
        optimizer.zero_grad()
        loss = model(ids, targets)
        loss.backward()
        norm = torch.sqrt(sum((p.grad**2).sum() for p in model.parameters())).item()
        if grad_clip is None:
            grad_clip = round(0.5 * norm, 3)  # so that every step clips
            tensors |= {f"grad/{name}": p.grad.clone() for name, p in model.named_parameters()}
        for parameter in model.parameters():
            parameter.grad *= min(1.0, grad_clip / norm)
        for group in optimizer.param_groups:
            group["lr"] = lr
        optimizer.step()
        steps.append({"loss": loss.item(), "grad_norm": norm, "lr": lr})
    tensors |= {f"after/{name}": p.detach().clone() for name, p in model.named_parameters()}
    description = {
        "config": {**vars(config), "layer_norm_eps": model.ln_f.eps},
        "ids": ids.tolist(), "targets": targets.tolist(), "valid_targets": int((targets >= 0).sum()),
        "loss": steps[0]["loss"], "grad_norm": steps[0]["grad_norm"],
        "optimizer": {**OPTIMIZER, "grad_clip": grad_clip}, "steps": steps,
    }
    return description, tensors


def main():
    torch.set_num_threads(1)
    index = {"made_by": "tests/golden/make_gpt_golden.py", "file": "gpt_small.bin", "models": {}}
    floats = []
    for seed, (name, (config, batch)) in enumerate(MODELS.items(), 1):
        description, tensors = make(config, batch, seed)
        description["tensors"] = {}
        for tensor_name, tensor in tensors.items():
            offset = sum(map(len, floats))
            description["tensors"][tensor_name] = {"shape": list(tensor.shape), "offset": offset}
            floats.append(tensor.numpy().astype("<f4").ravel())
        index["models"][name] = description
    data = np.concatenate(floats)

    json_path, bin_path = os.path.join(HERE, "gpt_small.json"), os.path.join(HERE, index["file"])
    if sys.argv[1:] == ["--check"]:
        with open(json_path, encoding="utf-8") as file:
            stored = json.load(file)
        before = np.fromfile(bin_path, "<f4")
        for name, model in index["models"].items():
            for tensor_name, place in model["tensors"].items():
                assert stored["models"][name]["tensors"][tensor_name] == place, tensor_name
                part = slice(place["offset"], place["offset"] + int(np.prod(place["shape"])))
                worst = np.abs(before[part] - data[part]).max()
                # Where a true gradient is zero, both are noise (see above).
                assert worst <= 1e-6 * max(np.abs(data[part]).max(), 1e-3), (name, tensor_name, worst)
            assert abs(stored["models"][name]["loss"] - model["loss"]) < 1e-9, name
        print(f"the files agree with PyTorch {torch.__version__}")
        return
    with open(json_path, "w", encoding="utf-8") as file:
        file.write(compact(index) + "\n")
    data.tofile(bin_path)
    print(f"{json_path}, {bin_path}: {len(data)} floats")


def compact(value, indent=0):
    """JSON with a line for each entry, and leaves and lists of numbers on one."""
    nested = isinstance(value, dict) and any(isinstance(v, dict) for v in value.values())
    if not nested and not (isinstance(value, dict) and "steps" in value):
        return json.dumps(value)
    pad = "  " * (indent + 1)
    entries = [f"{pad}{json.dumps(k)}: {compact(v, indent + 1)}" for k, v in value.items()]
    return "{\n" + ",\n".join(entries) + "\n" + "  " * indent + "}"


if __name__ == "__main__":
    main()
