#!/usr/bin/env python3
"""One PyTorch process of vs_pytorch.py: trains the GPT for some steps and writes what it measured, as JSON.

    torch_train.py JOB.json       (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT as torch.distributed wants them)

The job says model, batch and optimizer; its "mode" names an entry of MODES: how the model is spread over the ranks. To
compare with another library, add an entry.
"""

import json
import os
import sys
import time

import torch
import torch.distributed as dist

from same_start import Batches, initial_weight
from torch_gpt import GPT, Config, parameter_groups


def adamw(model, job):
    return torch.optim.AdamW(parameter_groups(model, job["weight_decay"]), lr=job["lr"],
                             betas=(job["beta1"], job["beta2"]), eps=1e-8, fused=True)


def one_process(model, job):
    return model, adamw(model, job)


def ddp(model, job):
    model = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    return model, adamw(model, job)


# name -> function(model, job) that returns (model to call, optimizer). clip_grad_norm_ is called on the model.
MODES = {"one": one_process, "ddp": ddp}


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        job = json.load(file)
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    torch.set_num_threads(job["threads"])
    if world > 1:
        dist.init_process_group("gloo")

    config = Config(**job["model"])
    model = GPT(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.from_numpy(initial_weight(name, parameter.shape, config.n_layer, job["seed"])))
    batches = Batches(job["data"], config.block_size, job["seed"])
    spread, optimizer = MODES[job["mode"]](model, job)

    B = job["batch_size"]  # per rank
    step_seconds, losses = [], []
    for step in range(job["steps"]):
        begin = time.perf_counter()
        ids, targets = (torch.from_numpy(a) for a in batches.get((step * world + rank) * B, B))
        loss = spread(ids, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(spread.parameters(), job["grad_clip"])
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())  # of this rank's part of the batch
        step_seconds.append(time.perf_counter() - begin)

    with open(f"{job['result']}.{rank}", "w", encoding="utf-8") as file:
        json.dump({"step_seconds": step_seconds, "losses": losses, "version": torch.__version__}, file)
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
