"""The kit's report: its table, its files, and clock, power and temperature of the GPU while it was made."""

import os
import platform
import shutil
import statistics
import subprocess
import threading
import time

SCHEMA = "trainctl.gpu_kit.v1"


def table(report):
    machine = report["machine"]
    accelerators = ", ".join(str(a.get("name", a)) if isinstance(a, dict) else str(a) for a in machine.get("accelerators") or [])
    lines = [f"- machine: {accelerators or 'no accelerator'}; {machine.get('host_cpu') or platform.processor()}, "
             f"{machine.get('cores') or '?'} cores; driver {machine.get('driver') or 'none'}",
             f"- date: {report['date']}; devices: {' and '.join(report['devices'])}"
             + ("; micro-sizes, the numbers mean nothing" if report["small"] else ""),
             f"- versions: {machine.get('versions', 'unknown')}",
             *(f"- during {step}: " + ", ".join(f"{field.replace('_', ' ')} {low:g} to {high:g}, median {median:g}"
                                                for field, (low, median, high) in gpu.items())
               for step, gpu in report.get("step_gpu", {}).items()), "",
             "| what | result | found | bound |", "|---|---|---|---|"]
    for result in report["results"]:
        found = "; ".join(text for text in (result.get("value", ""), result.get("reason", "")) if text)
        found = " ".join(found.split()).replace("|", "\\|")
        lines.append(f"| {result['name']} | {result['status']} | {found[:400]} | {result.get('target', '')} |")
    return "\n".join(lines) + "\n"


def keep_earlier(out):
    """What an earlier call wrote stays beside what this one writes, under the next free number."""
    if (out / "results.json").exists():
        number = next(n for n in range(1, 1 << 20) if not (out / f"results-{n}.json").exists())
        for suffix in ("json", "md"):
            if (out / f"results.{suffix}").exists():
                os.replace(out / f"results.{suffix}", out / f"results-{number}.{suffix}")


class Monitor:
    """Clock, power and temperature of the first GPU, every second, while the kit runs."""

    FIELDS = ("clock_mhz", "power_w", "temperature_c")

    def __init__(self):
        self.samples, self.process = [], None
        if program := shutil.which("nvidia-smi"):
            self.process = subprocess.Popen([program, "-i", "0", "--query-gpu=clocks.sm,power.draw,temperature.gpu",
                                             "--format=csv,noheader,nounits", "-l", "1"], stdin=subprocess.DEVNULL,
                                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            self.thread = threading.Thread(target=self.read, daemon=True)
            self.thread.start()

    def read(self):
        for line in self.process.stdout:
            try:
                values = [float(value) for value in line.split(",")]
            except ValueError:
                continue  # "[N/A]"
            if len(values) == len(self.FIELDS):
                self.samples.append((time.monotonic(), values))

    def summary(self, begin):
        """Least, median and most since `begin`; nothing where nothing was sampled."""
        samples = [values for at, values in self.samples if at >= begin]
        return {field: [min(column), statistics.median(column), max(column)]
                for field, column in zip(self.FIELDS, zip(*samples))}

    def stop(self):
        if self.process is not None:
            self.process.kill()
            # Where the driver hangs, so does nvidia-smi, and not even killing ends it.
            self.thread.join(timeout=5)
            if not self.thread.is_alive():
                self.process.wait()
                self.process.stdout.close()
