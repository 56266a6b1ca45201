#!/usr/bin/env python3
"""Lets transformers judge our Hugging Face folders. No test runs it: it needs torch and transformers (4 or 5).

    python3 check_hugging_face.py PROGRAM [FOLDER...]   PROGRAM: build/release/bin/example_hugging_face
    python3 check_hugging_face.py --folder EXPORT       EXPORT: what train_gpt --export wrote

With PROGRAM, each FOLDER (default: those of hugging_face/) is read by us and exported again, and three models must give
the same logits within 1e-5: transformers' from FOLDER, ours from FOLDER, transformers' from our export. One more folder is
made on the spot by the transformers that is installed. The export must load without a missing or unexpected tensor.
With --folder that alone is checked, and the most likely continuation printed.
"""

import os
import subprocess
import sys
import tempfile

import torch
import transformers
from transformers import GPT2Config, GPT2LMHeadModel

HERE = os.path.dirname(os.path.abspath(__file__))


def load(folder, exact):
    """The model; with `exact`, nothing may be missing, unexpected, or of another shape."""
    model, info = GPT2LMHeadModel.from_pretrained(folder, attn_implementation="eager", output_loading_info=True)
    if exact:
        wrong = {kind: names for kind, names in info.items() if names and kind != "conversion_errors"}
        assert not wrong, f"{folder}: {wrong}"
    return model.eval()


def logits_of(model):
    ids = torch.arange(model.config.n_positions)[None] % model.config.vocab_size
    with torch.no_grad():
        return model.double()(ids).logits[0]


def check(program, folder, export):
    theirs = logits_of(load(folder, exact=False))
    output = subprocess.run([program, folder, export], capture_output=True, text=True, check=False)
    assert output.returncode == 0, output.stderr
    ours = torch.tensor([[float(x) for x in line.split()] for line in output.stdout.splitlines()], dtype=torch.float64)
    back = load(export, exact=True)
    exported = logits_of(back)
    reading, writing = ((x - theirs).abs().max().item() for x in (ours, exported))
    print(f"{folder}: logits up to {theirs.abs().max().item():.2f}; ours differ by {reading:.1e}, the export's by {writing:.1e}")
    assert reading < 1e-5 and writing < 1e-5


def save_fresh(folder):
    """A model as transformers starts it, in three shards."""
    torch.manual_seed(7)
    tokens = {"bos_token_id": None, "eos_token_id": None}
    config = GPT2Config(n_layer=3, n_head=6, n_embd=66, n_positions=65, vocab_size=301, **tokens)
    GPT2LMHeadModel(config).save_pretrained(folder, max_shard_size="300KB")
    return folder


def main():
    print(f"transformers {transformers.__version__}, torch {torch.__version__}")
    if sys.argv[1] == "--folder":
        model = load(sys.argv[2], exact=True)
        print(model.config)
        prompt = torch.tensor([list(b"The ") if model.config.vocab_size == 256 else [0]])
        room = min(16, model.config.n_positions - prompt.shape[1])
        tokens = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=room, do_sample=False,
                                pad_token_id=0)
        print(tokens.tolist()[0])
        return
    program, folders = sys.argv[1], sys.argv[2:]
    with tempfile.TemporaryDirectory() as temp:
        golden = os.path.join(HERE, "hugging_face")
        folders = folders or [os.path.join(golden, name) for name in sorted(os.listdir(golden))]
        folders.append(save_fresh(os.path.join(temp, "fresh")))
        for i, folder in enumerate(folders):
            check(program, folder, os.path.join(temp, str(i)))
    print(f"{len(folders)} folders agree")


if __name__ == "__main__":
    main()
