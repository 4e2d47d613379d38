"""Steps that never end under torchrun or ft_launcher, to be killed: what they do about it is timed beside `trainctl launch`.

    torchrun --standalone --nproc_per_node 2 --max-restarts 1 steps_torchrun.py

Each rank says its process number; the first one says each step. A step is an all-reduce of 4 MB and 20 ms of rest.
"""

import os
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
print(f"rank {dist.get_rank()} is process {os.getpid()}", flush=True)
ones = torch.ones(1 << 20)
step = 0
while True:
    step += 1
    dist.all_reduce(ones)
    ones.fill_(1)
    time.sleep(0.02)
    if dist.get_rank() == 0:
        print(f"step {step} done", flush=True)
