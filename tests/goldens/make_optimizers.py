"""Makes optimizers.json: twenty updates of a few parameters by each optimizer.

    python tests/goldens/make_optimizers.py [--out FILE]

AdamW and SGD are torch.optim's, in fp32. PyTorch has no Lion: it is written here from the paper, in float64. README.md
says what is in the file.
"""

import argparse
import json
import pathlib
import re

import torch

STEPS, NUMEL, CLIP_NORM = 20, 10, 1.0
OPTIONS = {
    "adamw": dict(betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1),
    "lion": dict(betas=(0.9, 0.99), weight_decay=0.3),
    "sgd": dict(momentum=0.9, weight_decay=0.02),
}


class Lion(torch.optim.Optimizer):
    """Chen et al. 2023, arXiv 2302.06675, algorithm 2."""

    def __init__(self, groups, lr, betas, weight_decay=0.0):
        super().__init__(groups, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                m = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
                update = torch.sign(beta1 * m + (1 - beta1) * p.grad)
                p.copy_(p - group["lr"] * (update + group["weight_decay"] * p))
                m.copy_(beta2 * m + (1 - beta2) * p.grad)


CLASSES = {"adamw": (torch.optim.AdamW, torch.float32), "lion": (Lion, torch.float64),
           "sgd": (torch.optim.SGD, torch.float32)}


def run(name, initial, gradients, rates):
    cls, dtype = CLASSES[name]
    options = dict(OPTIONS[name])
    weight_decay = options.pop("weight_decay")
    decayed, other = (part.to(dtype).clone().requires_grad_() for part in initial.chunk(2))
    optimizer = cls([dict(params=[decayed], weight_decay=weight_decay), dict(params=[other], weight_decay=0.0)],
                    lr=rates[0], **options)
    parameters = []
    for gradient, rate in zip(gradients, rates):
        for part, value in zip((decayed, other), gradient.to(dtype).chunk(2)):
            part.grad = value.clone()
        torch.nn.utils.clip_grad_norm_([decayed, other], CLIP_NORM)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        parameters.append(torch.cat((decayed, other)).tolist())
    kinds = [kind for kind in optimizer.state[decayed] if kind != "step"]
    states = {kind: torch.cat([optimizer.state[part][kind] for part in (decayed, other)]).tolist() for kind in kinds}
    return dict(options=OPTIONS[name], parameters=parameters, states=states)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent / "optimizers.json")
    arguments = parser.parse_args()
    generator = torch.Generator().manual_seed(1234)
    initial = torch.randn(NUMEL, generator=generator)
    # Of several sizes, so that some steps are clipped and some are not; once without any.
    gradients = torch.randn(STEPS, NUMEL, generator=generator) * torch.linspace(0.05, 1.0, STEPS).unsqueeze(1)
    gradients[3] = 0
    rates = [0.02 / (1 + step) for step in range(STEPS)]
    golden = dict(torch=torch.__version__.split("+")[0], clip_norm=CLIP_NORM, lr=rates, initial=initial.tolist(),
                  gradients=gradients.tolist(),
                  optimizers={name: run(name, initial, gradients, rates) for name in OPTIONS})
    text = json.dumps(golden, indent=1)
    text = re.sub(r"\[([^\[\]]*)\]", lambda row: "[" + " ".join(row[1].split()) + "]", text)  # a row of numbers a line
    arguments.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
