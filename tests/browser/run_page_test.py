"""The pages of `report --html` in a real browser, headless, in light and dark, with one and four runs.

    python3 tests/browser/run_page_test.py TRAINCTL [FOLDER]

Each must draw itself without an error, report as many points as its data has, and answer to pointing, hiding a run,
another axis, zooming and another theme. Screenshots must show every run in the color of the theme; they are kept in
FOLDER if it is given. Skipped, with the reason, where there is no browser.
"""
import json
import math
import os
import random
import re
import subprocess
import sys
import tempfile
from datetime import datetime, timedelta, timezone

import browser
from browser import TIMEOUT_S, attribute

LIGHT = {"page": 0xF4F5F7, "runs": (0x3566C8, 0xD9702A, 0x1F8F63, 0xB8398F)}
DARK = {"page": 0x12151B, "runs": (0x7BA4F4, 0xF0A060, 0x5FCE9B, 0xE88BC8)}

# Runs in the page after the page's script, and stores its findings in data-hands.
HANDS = """
<script>
(() => {
  const say = (text) => { document.documentElement.dataset.hands = text; };
  const $ = (selector) => document.querySelector(selector), all = (selector) => [...document.querySelectorAll(selector)];
  const need = (is, what) => { if (!is) throw new Error(what); };
  try {
    const runs = JSON.parse($('#data').textContent).runs, trained = runs.filter((run) => run.step > 0);
    need($('h1').textContent === JSON.parse($('#data').textContent).title, 'the title is another');
    need(document.documentElement.scrollWidth <= innerWidth, 'wider than the window: ' + document.documentElement.scrollWidth);
    const cards = all('.chart').filter((card) => !card.hidden);
    if (trained.length === 0) {
      need(cards.length === 0 && $('#problems').textContent.includes('steps yet'), 'a run without steps is not reported');
      return say('ok');
    }
    need(cards.length >= 5, 'only ' + cards.length + ' charts');
    for (const card of cards) {
      const paths = [...card.querySelectorAll('path.curve')];
      need(paths.length >= 1 && paths.every((path) => !/NaN|Infinity|undefined/.test(path.getAttribute('d'))), card.id + ' has no good paths');
      need(paths.some((path) => path.getAttribute('d').length > 40), card.id + ' is empty');
      need(![...card.querySelectorAll('svg *')].some((node) => [...node.attributes].some((one) => /NaN|Infinity/.test(one.value))), card.id + ' has an attribute that is not a number');
    }
    const send = (target, type, x, y, more) => target.dispatchEvent(new PointerEvent(type, { clientX: x, clientY: y, bubbles: true, cancelable: true, button: 0, pointerId: 1, ...more }));
    for (const card of cards) {
      const body = card.querySelector('.body'), box = body.getBoundingClientRect();
      body.setPointerCapture = () => {};
      send(body, 'pointermove', box.left + box.width / 4, box.top + 60);
      need(!$('#tip').hidden && all('#tip .row').length >= 1, card.id + ' does not answer to pointing');
      send(body, 'pointerleave', 0, 0);
      need($('#tip').hidden, 'the tip stays');
    }
    const texts = () => all('#chart-loss svg text').map((node) => node.textContent).join();
    const body = $('#chart-loss .body'), box = body.getBoundingClientRect(), before = texts();
    send(body, 'pointerdown', box.left + 200, box.top + 60);
    send(body, 'pointermove', box.left + 300, box.top + 60);
    send(body, 'pointerup', box.left + 300, box.top + 60);
    need(texts() !== before && !$('#zoom-all').disabled, 'dragging does not zoom');
    $('#zoom-all').click();
    need(texts() === before, 'Whole run does not undo the zoom: ' + before);
    for (const axis of ['tokens', 'seconds']) {
      $('#axis').value = axis;
      $('#axis').dispatchEvent(new Event('change'));
      need(texts().endsWith(axis === 'tokens' ? 'tokens' : 'training time'), 'the axis ' + axis + ' does not show');
      need(!/NaN|Infinity/.test($('#charts').innerHTML), 'the axis ' + axis + ' has numbers that are none');
    }
    $('#axis').value = 'steps';
    $('#axis').dispatchEvent(new Event('change'));
    need(texts() === before, 'the axis of steps does not return');
    const path = () => $('#chart-loss path.curve').getAttribute('d'), straight = path();
    $('#log').click();
    need(path() !== straight, 'the log scale does not show');
    need(!/NaN|Infinity/.test($('#charts').innerHTML), 'the log scale has numbers that are none');
    $('#log').click();
    need(path() === straight, 'the log scale stays');
    if (runs.some((run) => run.events.some((event) => event.kind === 'failure'))) {
      const flags = all('#chart-loss svg g path').length;
      $('#marks').click();
      need(all('#chart-loss svg g path').length < flags, 'events cannot be hidden');
      $('#marks').click();
    }
    const toggles = all('#toggles button');
    need(toggles.length === (runs.length > 1 ? runs.length : 0), 'there are ' + toggles.length + ' toggles');
    if (toggles.length > 1) {
      toggles[1].click();
      need(all('path.curve[data-run="1"]').length === 0 && all('path.curve[data-run="0"]').length > 0, 'a run cannot be hidden');
      for (const toggle of toggles) if (toggle.getAttribute('aria-pressed') === 'true') toggle.click();
      need(all('path.curve').length === 0, 'runs cannot all be hidden');
      for (const toggle of toggles) toggle.click();
    }
    for (let i = 0; i < 3; ++i) $('#theme').click();
    say('ok');
  } catch (error) {
    say('error ' + error.message);
  }
})();
</script>
"""


def write_lines(path, records):
    with open(path, "w", encoding="utf-8") as file:
        for record in records:
            file.write(json.dumps(record) + "\n")


def make_run(folder, steps, lr, seed, trouble=False, sets=("held-out </script>", "code"), report=True):
    """A run folder as a run of `steps` steps leaves it."""
    os.makedirs(folder)
    chance = random.Random(seed)
    begin = datetime(2026, 11, 28, 12, 0, seed, tzinfo=timezone.utc)
    metrics, timings = [], []
    skipped = {steps // 3, steps // 3 + 7} if trouble else set()
    pause = steps // 2 if trouble else steps + 1
    for step in range(1, steps + 1):
        loss = 2.2 + 4.8 * math.exp(-step * lr * 8) + 0.06 * chance.gauss(0, 1)
        metrics.append({"step": step, "loss": loss, "grad_norm": 0.6 + 3 * math.exp(-step * lr * 20) + 0.1 * chance.random(),
                        "lr": lr * min(1, step / 20) * (0.5 + 0.5 * math.cos(math.pi * step / steps)),
                        "tokens": step * 4096, "batch_hash": "00"})
        if step in skipped:
            metrics[-1].update(loss="nan", grad_norm="inf", skipped=True)
        if trouble and step == steps // 4:
            metrics[-1]["loss"] = None
        if step % (steps // 12) == 0:
            metrics[-1]["eval"] = {name: loss + 0.1 + 0.2 * k for k, name in enumerate(sets)}
        took = 0.12 + 0.02 * chance.random() + (0.9 if step in (1, pause + 1) else 0)
        end = begin + timedelta(seconds=0.13 * step + (60 if step > pause else 0))
        timings.append({"step": step, "seconds": took, "tokens_per_second": 4096 / took, "memory_bytes": {"tensor_peak": 75948032},
                        "time": end.timestamp()})
    write_lines(folder + "/metrics.jsonl", metrics)
    write_lines(folder + "/timings.jsonl", timings)

    def at(step):
        return (begin + timedelta(seconds=0.13 * step + 0.05 + (60 if step > pause else 0))).isoformat()

    journal = [{"event": "launch", "time": begin.isoformat(), "world_size": 2, "pid": 1, "host": "node1"},
               {"event": "generation", "time": begin.isoformat(), "generation": 1, "world_size": 2}]
    journal += [{"event": "checkpoint", "time": at(step), "generation": 1, "step": step}
                for step in range(steps // 4, pause + 1, steps // 4) if step <= steps]
    if trouble:
        journal += [{"event": "worker_exit", "time": at(pause), "generation": 1, "step": pause + 12, "rank": 1,
                     "message": "killed by SIGKILL (9): <b>by another process</b></script>"},
                    {"event": "restart", "time": at(pause), "message": f"restarting all workers (1 of 3) from the checkpoint of step {pause}"},
                    {"event": "generation", "time": at(pause), "generation": 2, "world_size": 2}]
    journal.append({"event": "end", "time": at(steps), "status": "finished"})
    write_lines(folder + "/journal.jsonl", [{"v": 1, **event} for event in journal])
    parts = {"parameters": 4198912, "gradients": 4198912, "optimizer": 8397824, "activations": 59136000}
    peak = sum(parts.values())
    with open(folder + "/recipe.json", "w", encoding="utf-8") as file:
        json.dump({"schema": "trainctl.recipe.v1", "optimizer": {"lr": lr}, "train": {"steps": steps}, "run": {"name": "</script>"}}, file)
    if report:
        with open(folder + "/report.json", "w", encoding="utf-8") as file:
            json.dump({"schema": "trainctl.report.v1", "predicted_peak_bytes": peak, "measured_peak_bytes": peak + 65536,
                       "predicted_at_peak": parts, "measured_at_peak": {**parts, "activations": parts["activations"] + 65536},
                       "predicted_step_seconds": 0.11}, file)
    else:
        with open(folder + "/plan.json", "w", encoding="utf-8") as file:
            json.dump({"predicted": {"peak_bytes": peak, **{name + "_bytes": size for name, size in parts.items()}}}, file)


def points_of(text):
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL).group(1))
    curves = [run[name] for run in data["runs"] for name in ("loss", "smooth", "lr", "grad_norm", "tokens_per_second", "seconds")]
    curves += [curve for run in data["runs"] for curve in run["evaluation"]]
    return len(data["runs"]), sum(len(curve["steps"]) for curve in curves)


def main():
    trainctl = sys.argv[1]
    program = browser.find()
    if program is None:
        return browser.skip()
    failures = []
    with tempfile.TemporaryDirectory(prefix="trainctl-runs-") as folder:
        kept = sys.argv[2] if len(sys.argv) > 2 else folder
        profile = os.path.join(folder, "profile")
        runs = [os.path.join(folder, name) for name in ("base", "lr-high <script>alert(1)", "long & \"quoted\"", "small")]
        make_run(runs[0], 960, 2e-3, 1, trouble=True)
        make_run(runs[1], 1_600, 6e-3, 2)
        make_run(runs[2], 3_000, 1e-3, 3, sets=("held-out </script>",))
        make_run(runs[3], 480, 4e-3, 4, report=False)
        more = [os.path.join(folder, f"more-{k}") for k in range(6)]
        for k, path in enumerate(more):
            make_run(path, 60 + 12 * k, 1e-3, 10 + k)
        empty = os.path.join(folder, "empty")
        os.makedirs(empty)
        write_lines(empty + "/journal.jsonl", [{"v": 1, "time": "2026-11-28T12:00:00+00:00", "event": "launch", "world_size": 1, "pid": 1}])

        def report(name, chosen):
            path = os.path.join(folder, name + ".html")
            done = subprocess.run([trainctl, "report", *chosen, "--html", path], timeout=TIMEOUT_S, capture_output=True, text=True)
            if done.returncode != 0:
                failures.append(f"{name}: report exits with {done.returncode}: {done.stderr}")
                return None
            with open(path, encoding="utf-8") as file:
                return file.read()

        def check(name, text, dark=False, size="1400,1000", expected=None):
            path = os.path.join(folder, name + ".checked.html")
            with open(path, "w", encoding="utf-8") as file:
                file.write(text.replace("</body>", HANDS + "</body>"))
            dom, err = browser.dom_of(program, path, profile, size, dark)
            if not dom or "<html" not in dom:
                failures.append(f"{name}: nothing came back from {program}: {err[-600:]}")
                return
            if expected is None:
                expected = re.escape("ok {} runs, {} points".format(*points_of(text)))
                if attribute(dom, "hands") != "ok":
                    failures.append(f"{name} at {size}: {attribute(dom, 'hands')}")
                failures.extend(f"{name} at {size}: {line}" for line in browser.complaints(err))
            if not re.fullmatch(expected, attribute(dom, "check") or ""):
                failures.append(f"{name} at {size}: the page says {attribute(dom, 'check')}, expected {expected}")

        def look(name, num_runs, dark):
            theme, path = DARK if dark else LIGHT, os.path.join(kept, f"{name}-{'dark' if dark else 'light'}.png")
            browser.screenshot(program, os.path.join(folder, name + ".html"), profile, "1200,1300", path, dark)
            colors = browser.colors_of(path)
            if colors.get(theme["page"], 0) < 20_000:
                failures.append(f"{path}: the page's background is not there")
            if len(colors) < 100:
                failures.append(f"{path}: only {len(colors)} colors")
            for k, color in enumerate(theme["runs"]):
                found = colors.get(color, 0)
                if (found < 100) if k < num_runs else (found > 0):
                    failures.append(f"{path}: {found} pixels in the color of run {k}")

        pages = {"one-run": runs[:1], "four-runs": runs, "empty": [empty], "with-empty": [runs[0], empty], "ten-runs": runs + more}
        for name, chosen in pages.items():
            text = report(name, chosen)
            if text is None:
                continue
            check(name, text)
            if name in ("one-run", "four-runs"):
                check(name, text, dark=True)
                check(name, text, size="500,900")
                for dark in (False, True):
                    look(name, len(chosen), dark)
            if name == "four-runs":
                # The check itself can fail.
                check("damaged", text.replace('"runs":[', '"runs":[,', 1), expected="error .*JSON.*")
                check("incomplete", text.replace('"smooth":', '"rough":'), expected="error .*")
        print(f"{len(pages)} pages in {program}")

        def exits(code, what, *words):
            done = subprocess.run([trainctl, "report", *words], timeout=TIMEOUT_S, capture_output=True, text=True)
            if done.returncode != code:
                failures.append(f"{what}: exit code {done.returncode} instead of {code}: {done.stderr}")
            return done.stdout + done.stderr

        page = os.path.join(folder, "one-run.html")
        exits(2, "an unknown run", os.path.join(folder, "nothing"))
        exits(2, "a page that exists", runs[0], "--html", page)
        exits(0, "a page that is replaced", runs[0], "--html", page, "--force")
        exits(2, "a page in place of a log", runs[0], "--html", runs[0] + "/metrics.jsonl", "--force")
        told = exits(0, "a table", *runs, runs[0] + "/")
        if told.count("\nbase ") != 1 or "960" not in told:
            failures.append("the table of runs is not as expected:\n" + told)
        if "<!doctype html>" not in exits(0, "a page on stdout", runs[0], "--html", "/dev/stdout")[:16]:
            failures.append("a page on stdout does not begin as one")
        with open(runs[3] + "/metrics.jsonl", "a", encoding="utf-8") as file:
            file.write("not a step\n")
        if "metrics.jsonl:481" not in exits(6, "damaged metrics", runs[3], "--html", os.path.join(folder, "damaged.html")):
            failures.append("damaged metrics: the line is not named")
    for failure in failures:
        print(failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
