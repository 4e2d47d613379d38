"""Does trainctl count the GPUs that CUDA shows, under many values of CUDA_VISIBLE_DEVICES?

    python3 tests/gpu/visible_devices.py [TRAINCTL]

Needs a machine with a GPU and its driver; PyTorch is not used. For each value it asks CUDA's own library, in a
process of its own, and `trainctl doctor`, and prints both. Where CUDA shows none, trainctl may refuse instead. Exit
code 1 if the two differ, 77 without a driver. Without TRAINCTL it prints what CUDA shows.
"""

import ctypes
import json
import os
import subprocess
import sys

COUNT = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
count = ctypes.c_int(0)
error = cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count))
names = []
for i in range(0 if error else count.value):
    uuid = (ctypes.c_ubyte * 16)()
    device = ctypes.c_int(0)
    cuda.cuDeviceGet(ctypes.byref(device), i)
    cuda.cuDeviceGetUuid(uuid, device)
    digits = bytes(uuid).hex()
    names.append("GPU-" + "-".join(digits[a:b] for a, b in ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32))))
print(error, *names)
"""
NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE


def environment(value):
    variables = {name: text for name, text in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    return variables if value is None else {**variables, "CUDA_VISIBLE_DEVICES": value}


def ask_cuda(value):
    """The error of the first call that failed, or 0, and the UUIDs of the GPUs that CUDA shows."""
    out = subprocess.run([sys.executable, "-c", COUNT], env=environment(value), stdout=subprocess.PIPE, text=True,
                         check=True, timeout=120).stdout.split()
    return int(out[0]), out[1:]


def ask_trainctl(trainctl, value):
    """How many accelerators doctor lists, and what it says of visible GPUs."""
    out = subprocess.run([trainctl, "doctor", "--json"], env=environment(value), stdout=subprocess.PIPE, text=True,
                         timeout=120).stdout
    report = json.loads(out)
    said = [finding for finding in report["findings"] if finding["name"] == "visible GPUs"]
    return len(report["accelerators"]), said[0] if said else {"health": "ok", "advice": ""}


def values_for(uuids):
    n = len(uuids)
    first = uuids[0]
    values = [None, "", "-1", "0", "0,0", f"0,{n}", f"{n},0", "0,-1", "0,-1,0", " 0 ", "+0", "-0", "00", "0x", "0gpu", "0,",
              ",0", "0,,0", "gpu", first, first[:8], f"0,{first}", f"{first},0", f"{first},{first}", first.upper(),
              f"{first},GPU-ffffffff", f"GPU-ffffffff,{first}", "GPU-", f"MIG-{first}/0/0", "9" * 20]
    if n > 1:
        values += ["1", "1,0", "0,1,0", f"{uuids[1]},0", ",".join(uuids)]
    return values


def main():
    trainctl = sys.argv[1] if len(sys.argv) > 1 else None
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        print(error)
        return 77
    error, uuids = ask_cuda(None)
    if error or not uuids:
        print(f"CUDA shows no GPU here: error {error}")
        return 77
    differ = []
    for value in values_for(uuids):
        error, shown = ask_cuda(value)
        line = f"{'(not set)' if value is None else repr(value):<50} CUDA {len(shown)}{f', error {error}' if error else ''}"
        if trainctl:
            count, said = ask_trainctl(trainctl, value)
            is_refused = said["health"] == "warning"
            is_same = count == len(shown) and (error in (0, NO_DEVICE) or is_refused)
            line += f"   trainctl {'refuses' if is_refused else count}{'' if is_same else '   DIFFERS: ' + said['advice']}"
            if not is_same:
                differ.append(value)
        print(line, flush=True)
    if differ:
        print(f"{len(differ)} differ: {differ}")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
