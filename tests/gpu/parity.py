"""Whether two runs of one recipe computed the same: the lines of their metrics.jsonl, step by step."""

import math
from typing import NamedTuple


class Bounds(NamedTuple):
    """Largest relative differences of loss and gradient norm, at the first step and later."""

    first_loss: float
    loss: float
    first_norm: float
    norm: float


def relative(a, b):
    """|b - a| / |a|; infinite where one of them is no finite number."""
    if not (math.isfinite(a) and math.isfinite(b)):
        return math.inf
    return abs(b - a) / max(abs(a), 1e-30)


def compare(ours, theirs, bounds):
    """The largest differences, and every one beyond its bound as a sentence. What must not depend on the device at
    all, the data and the learning rate, has to be equal."""
    differences, worst_loss, worst_norm = [], 0.0, 0.0
    if not ours or len(ours) != len(theirs):
        differences.append(f"{len(ours)} steps against {len(theirs)}")
    for i, (a, b) in enumerate(zip(ours, theirs)):
        for field in ("step", "tokens", "lr", "batch_hash"):
            if a[field] != b[field]:
                differences.append(f"step {a['step']}: {field} {a[field]} against {b[field]}")
        for field, bound in (("loss", bounds.first_loss if i == 0 else bounds.loss),
                             ("grad_norm", bounds.first_norm if i == 0 else bounds.norm)):
            if a[field] is None and b[field] is None:  # step 0, before training
                continue
            found = relative(a[field], b[field])
            if field == "loss":
                worst_loss = max(worst_loss, found)
            else:
                worst_norm = max(worst_norm, found)
            if not found <= bound:
                differences.append(f"step {a['step']}: {field} {a[field]:.9g} against {b[field]:.9g}, "
                                   f"{found:.1e} apart, bound {bound:g}")
    return {"steps": min(len(ours), len(theirs)), "worst_loss": worst_loss, "worst_norm": worst_norm,
            "differences": differences}
