#!/usr/bin/env python3
"""Makes the folders below hugging_face/: small GPT-2s as transformers writes them, with the logits that it computes.

    python3 make_hugging_face.py            writes the folders of the transformers that is installed
    python3 make_hugging_face.py --check    computes the logits of the folders that lie there again (tolerance 1e-9)

Needs torch, transformers and safetensors; the tests only read the folders:

    single    f32, one file, as transformers 5 saves it       sharded   bf16, three files and an index, transformers 5
    untied    f32, the head apart, as transformers 4 saves it
    bare      f16, the names and the config.json of the first GPT-2 on the hub: no `transformer.`, masks of attention,
              n_ctx, torch_dtype. Written by hand; both versions load it

Each has expected.json: ids (B,T) and logits (B,T,V), computed in double precision from the weights in the folder.
"""

import json
import os
import shutil
import sys

import torch
import transformers
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2LMHeadModel

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "hugging_face")
MAJOR = int(transformers.__version__.split(".")[0])

# Odd sizes throughout: a vocabulary and a number of positions that are prime, a head of 5 channels.
SIZES = {"n_layer": 2, "n_head": 4, "n_embd": 20, "n_positions": 11, "vocab_size": 37,
         "bos_token_id": None, "eos_token_id": None}


def draw_weights(model, seed):
    """Larger than GPT-2's own start, and no vector zero or one, so that every term of every formula counts."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() >= 2:
                parameter.copy_(0.15 * noise)
            elif ".ln_" in name and name.endswith("weight"):
                parameter.copy_(1 + 0.1 * noise)
            else:
                parameter.copy_(0.05 * noise)


def logits_of(folder, ids):
    model = GPT2LMHeadModel.from_pretrained(folder, attn_implementation="eager").double().eval()
    with torch.no_grad():
        return model(ids).logits


def make(name, seed, dtype=torch.float32, max_shard_size="1GB", **changes):
    folder = os.path.join(HERE, name)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    config = GPT2Config(**{**SIZES, **changes})
    model = GPT2LMHeadModel(config)
    draw_weights(model, seed)
    model = model.to(dtype)
    if name == "bare":
        write_bare(folder, model)
    else:
        model.save_pretrained(folder, max_shard_size=max_shard_size)
        os.remove(os.path.join(folder, "generation_config.json"))
    ids = torch.randint(config.vocab_size, (2, config.n_positions), generator=torch.Generator().manual_seed(seed))
    logits = [[[round(x, 12) for x in row] for row in sequence] for sequence in logits_of(folder, ids).tolist()]
    expected = {"transformers": transformers.__version__, "ids": ids.tolist(), "logits": logits}
    with open(os.path.join(folder, "expected.json"), "w", encoding="utf-8") as file:
        json.dump(expected, file)
        file.write("\n")
    print(folder)


def write_bare(folder, model):
    c = model.config
    tensors = {name: t.contiguous().clone() for name, t in model.transformer.state_dict().items()}
    for layer in range(c.n_layer):
        tensors[f"h.{layer}.attn.bias"] = torch.ones(c.n_positions, c.n_positions).tril()[None, None]
        tensors[f"h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
    save_file(tensors, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
    config = {"activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1,
              "bos_token_id": 36, "embd_pdrop": 0.1, "eos_token_id": 36, "initializer_range": 0.02,
              "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": c.n_positions, "n_embd": c.n_embd,
              "n_head": c.n_head, "n_layer": c.n_layer, "n_positions": c.n_positions, "resid_pdrop": 0.1,
              "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
              "torch_dtype": "float16", "vocab_size": c.vocab_size}
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file, indent=2)
        file.write("\n")


def check():
    for name in sorted(os.listdir(HERE)):
        folder = os.path.join(HERE, name)
        with open(os.path.join(folder, "expected.json"), encoding="utf-8") as file:
            expected = json.load(file)
        logits = logits_of(folder, torch.tensor(expected["ids"]))
        worst = (logits - torch.tensor(expected["logits"], dtype=torch.float64)).abs().max().item()
        print(f"{name}: largest difference of the logits {worst:.1e}")
        assert worst < 1e-9, name


def main():
    torch.set_num_threads(1)
    if sys.argv[1:] == ["--check"]:
        check()
    elif MAJOR >= 5:
        make("single", 1)
        make("sharded", 2, torch.bfloat16, "10KB")
    else:
        make("untied", 3, n_layer=1, tie_word_embeddings=False)
        make("bare", 4, torch.float16)


if __name__ == "__main__":
    main()
