"""The least that a person writes to see an all-reduce under torchrun: what `trainctl launch` is timed against.

    torchrun --standalone --nproc_per_node 2 allreduce_torchrun.py
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
ones = torch.ones(1)
dist.all_reduce(ones)
if dist.get_rank() == 0:
    print(f"first all-reduce done: {int(ones)} ranks", flush=True)
dist.destroy_process_group()
