"""Made-up tokens as an indexed dataset (docs/guide/data.md), the same ones everywhere."""

import random
import struct

TOKENS_PER_DOCUMENT = 4096


def write(prefix, vocab, documents):
    """prefix.bin and prefix.idx, of uint16: drawn like words, rank r with weight 1 / (r + 10)."""
    assert vocab <= 65536
    draw = random.Random(vocab)
    words = list(range(vocab))
    draw.shuffle(words)
    weights = [1.0 / (rank + 10) for rank in range(vocab)]
    n = TOKENS_PER_DOCUMENT
    with open(prefix.with_suffix(".bin"), "wb") as file:
        for _ in range(documents):
            file.write(struct.pack(f"<{n}H", *draw.choices(words, weights, k=n)))
    prefix.with_suffix(".idx").write_bytes(
        b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, documents, documents + 1)
        + struct.pack(f"<{documents}i", *[n] * documents)
        + struct.pack(f"<{documents}q", *[2 * n * i for i in range(documents)])
        + struct.pack(f"<{documents + 1}q", *range(documents + 1)))
