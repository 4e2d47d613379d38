"""Made-up tokens as an indexed dataset (docs/guide/data.md), the same ones everywhere."""

import random
import struct

def write(prefix, vocab, lengths):
    """Writes prefix.bin and prefix.idx, of uint16: documents of these lengths whose tokens are drawn like words, rank r
    with weight 1 / (r + 10)."""
    assert vocab <= 65536
    draw = random.Random(vocab)
    words = list(range(vocab))
    draw.shuffle(words)
    weights = [1.0 / (rank + 10) for rank in range(vocab)]
    begins = [0]
    with open(prefix.with_suffix(".bin"), "wb") as file:
        for length in lengths:
            file.write(struct.pack(f"<{length}H", *draw.choices(words, weights, k=length)))
            begins.append(begins[-1] + 2 * length)
    n = len(lengths)
    prefix.with_suffix(".idx").write_bytes(
        b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, n, n + 1)
        + struct.pack(f"<{n}i", *lengths)
        + struct.pack(f"<{n}q", *begins[:-1])
        + struct.pack(f"<{n + 1}q", *range(n + 1)))
