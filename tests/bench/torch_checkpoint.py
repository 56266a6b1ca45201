#!/usr/bin/env python3
"""One PyTorch process of checkpoint.py: saves or loads the state of an FSDP2 GPT with torch.distributed.checkpoint.

    torch_checkpoint.py JOB.json       (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT as torch.distributed wants them)

Timed is what PyTorch's own guide to distributed checkpoints does, to PyTorch's advantage: saving begins with the state
dict in hand, and loading ends when the tensors have their values, before set_state_dict hands them to the optimizer.
Files are brought to the disk by the writer itself (sync_files).
"""

import json
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

from torch_gpt import GPT, Config
from torch_train import fsdp2

OPTIMIZER = {"lr": 2e-4, "weight_decay": 0.1, "beta1": 0.9, "beta2": 0.95}


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        job = json.load(file)
    rank = int(os.environ["RANK"])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(rank)
    config = Config(**job["model"])
    model = GPT(config)
    for table in (model.wte, model.wpe):
        torch.nn.init.normal_(table.weight, std=0.02)
    model, optimizer = fsdp2(model, OPTIMIZER)

    if job["what"] == "save":  # moments that are not zero
        ids, targets = torch.randint(0, 256, (2, 1, config.block_size))
        model(ids, targets).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    model_state, optimizer_state = get_state_dict(model, optimizer)
    state = {"model": model_state, "optimizer": optimizer_state}
    dist.barrier()
    begin = time.perf_counter()
    if job["what"] == "save":
        dcp.save(state, storage_writer=dcp.FileSystemWriter(job["folder"], sync_files=True))
    else:
        dcp.load(state, checkpoint_id=job["folder"])
    dist.barrier()
    seconds = time.perf_counter() - begin
    if job["what"] == "load":
        set_state_dict(model, optimizer, model_state_dict=model_state, optim_state_dict=optimizer_state)
        for name, parameter in model.named_parameters():
            for moment in ("exp_avg", "exp_avg_sq"):
                if not optimizer.state[parameter][moment].to_local().any():
                    sys.exit(f"{moment} of {name} is zero after loading")

    with open(f"{job['result']}.{rank}", "w", encoding="utf-8") as file:
        json.dump({"seconds": seconds, "version": torch.__version__}, file)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
