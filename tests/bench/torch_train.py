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


def adamw_settings(job):
    return {"lr": job["lr"], "betas": (job["beta1"], job["beta2"]), "eps": 1e-8, "fused": True}


def adamw(model, job):
    return torch.optim.AdamW(parameter_groups(model, job["weight_decay"]), **adamw_settings(job))


def one_process(model, job):
    return model, adamw(model, job)


def compiled(model, job):
    return torch.compile(model), adamw(model, job)  # its first step, which compiles, takes a minute


# The functions below import what they use themselves, so that a mode's memory is its own. The marked lines are quoted
# by the chapter of zero/.


def ddp(model, job):
    # [ddp]
    from torch.nn.parallel import DistributedDataParallel
    spread = DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = adamw(model, job)
    # [end]
    return spread, optimizer


def zero1(model, job):
    # [zero1]
    from torch.distributed.optim import ZeroRedundancyOptimizer
    from torch.nn.parallel import DistributedDataParallel
    spread = DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = ZeroRedundancyOptimizer(parameter_groups(model, job["weight_decay"]), torch.optim.AdamW,
                                        parameters_as_bucket_view=True, **adamw_settings(job))
    # [end]
    return spread, optimizer


def fsdp2(model, job, reshard=True):
    # [fsdp2]
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model.h:
        fully_shard(block, mesh=mesh, reshard_after_forward=reshard)
    fully_shard(model, mesh=mesh)  # what no block holds; by default kept until its backward, which follows at once
    optimizer = adamw(model, job)  # after sharding: of the shards
    # [end]
    return model, optimizer


def fsdp2_keep(model, job):
    return fsdp2(model, job, reshard=False)


# name -> function(model, job) that returns (model to call, optimizer). clip_grad_norm_ is called on the model.
MODES = {"one": one_process, "compiled": compiled, "ddp": ddp, "zero1": zero1, "fsdp2": fsdp2,
         "fsdp2-keep": fsdp2_keep}


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
        for group in optimizer.param_groups:
            group["lr"] = job["lr"] * (step + 1) / (job["steps"] + 1)  # warm-up over the whole run
        ids, targets = (torch.from_numpy(a) for a in batches.get((step * world + rank) * B, B))
        # [step]
        loss = spread(ids, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(spread.parameters(), job["grad_clip"])
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        # [end]
        losses.append(loss.item())  # of this rank's part of the batch
        step_seconds.append(time.perf_counter() - begin)

    with open(f"{job['result']}.{rank}", "w", encoding="utf-8") as file:
        json.dump({"step_seconds": step_seconds, "losses": losses, "version": torch.__version__}, file)
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
