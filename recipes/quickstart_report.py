"""What a finished run achieved, from the files of its folder.

    python3 recipes/quickstart_report.py RUN TRAINCTL
"""
import json
import os
import statistics
import sys


def lines(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def mib(num_bytes):
    return f"{num_bytes / 2**20:.1f} MiB"


def main():
    run, trainctl = sys.argv[1:]
    evaluated = [record for record in lines(os.path.join(run, "metrics.jsonl")) if record.get("eval")]
    timings = lines(os.path.join(run, "timings.jsonl"))
    with open(os.path.join(run, "report.json"), encoding="utf-8") as file:
        memory = json.load(file)
    print()
    for name, before in evaluated[0]["eval"].items():
        after = evaluated[-1]["eval"][name]
        print(f"{name + ' loss':20} {before:.3f} before, {after:.3f} after step {evaluated[-1]['step']} (nats per byte)")
    speeds = [record["tokens_per_second"] for record in timings if "tokens_per_second" in record]
    print(f"{'speed':20} {statistics.median(speeds):,.0f} tokens/s (median of {len(speeds)} steps)")
    print(f"{'peak memory':20} {mib(memory['predicted_peak_bytes'])} predicted, "
          f"{mib(memory['measured_peak_bytes'])} measured (tensors of one worker)")
    print(f"{'run':20} {run}")
    print(f"{'train it longer':20} {trainctl} resume {run} --set train.steps={2 * evaluated[-1]['step']}")


main()
