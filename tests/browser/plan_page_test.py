"""The pages of `plan --html` in a real browser, headless.

    python3 tests/browser/plan_page_test.py PLAN_PAGES TRAINCTL

PLAN_PAGES writes most of them, TRAINCTL one from a recipe. Each must draw itself without an error, report as many intervals as its data has, and
answer to pointing, zooming, choosing and changing the theme. Skipped, with the reason, where there is no browser.
"""
import json
import os
import re
import subprocess
import sys
import tempfile

import browser
from browser import TIMEOUT_S, attribute, dom_of

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# Few layouts are left to search.
PLAN = ["plan", os.path.join(ROOT, "recipes", "plan", "llama3.1-405b_16384xh100.toml"), "--set", "cluster.nodes=64",
        "--set", "parallel.tp=8", "--set", "parallel.pp=8", "--set", "parallel.cp=1"]

# Runs in the page after its own script, and says in data-hands what it found.
HANDS = """
<script>
(() => {
  const root = document.documentElement, say = (text) => { root.dataset.hands = text; };
  try {
    const canvas = document.getElementById('timeline'), tip = document.getElementById('tip');
    const box = () => canvas.getBoundingClientRect();
    const send = (target, type, x, y, more) => target.dispatchEvent(new (type === 'wheel' ? WheelEvent : PointerEvent)(type,
      { clientX: x, clientY: y, bubbles: true, cancelable: true, button: 0, pointerId: 1, ...more }));
    canvas.setPointerCapture = () => {};
    document.getElementById('memory').setPointerCapture = () => {};
    const seen = new Set();
    for (let x = box().left + 80; x < box().right - 12; x += 3) {
      send(canvas, 'pointermove', x, box().top + 12);
      if (!tip.hidden) seen.add(tip.querySelector('b').textContent.split(' ')[0]);
    }
    if (!seen.has('Forward') || !(seen.has('Backward') || seen.has('Input'))) throw new Error('pointing finds ' + [...seen]);
    const middle = (box().left + box().right) / 2, y = box().top + 12;
    const before = send(canvas, 'wheel', middle, y, { deltaY: 100 });
    if (!before) throw new Error('the wheel alone does not move the page');
    if (send(canvas, 'wheel', middle, y, { deltaY: -900, ctrlKey: true })) throw new Error('Ctrl + wheel does not zoom');
    send(canvas, 'pointerdown', middle, y);
    send(canvas, 'pointermove', middle - 200, y);
    send(canvas, 'pointerup', middle - 200, y);
    send(canvas, 'dblclick', middle, y);
    const ranks = document.getElementById('rank');
    ranks.value = String(ranks.options.length - 1);
    ranks.dispatchEvent(new Event('change'));
    const bold = document.querySelectorAll('.stack.selected');
    if (bold.length !== 1 || bold[0].dataset.rank !== ranks.value) throw new Error('choosing a rank does not show');
    const memory = document.getElementById('memory').getBoundingClientRect();
    send(document.getElementById('memory'), 'pointermove', memory.left + 200, memory.top + 40);
    if (tip.hidden || !tip.textContent.startsWith('Rank ' + ranks.value)) throw new Error('memory does not answer');
    for (const id of ['zoom-in', 'zoom-out', 'zoom-all', 'theme', 'theme', 'theme']) document.getElementById(id).click();
    canvas.dispatchEvent(new KeyboardEvent('keydown', { key: '+', bubbles: true }));
    // Something other than one colour is on both canvases.
    for (const id of ['timeline', 'memory']) {
      const target = document.getElementById(id);
      const pixels = target.getContext('2d').getImageData(0, 0, target.width, target.height).data;
      const colors = new Set();
      for (let i = 0; i < pixels.length; i += 4 * 97) colors.add(pixels[i] * 65536 + pixels[i + 1] * 256 + pixels[i + 2]);
      if (colors.size < 4) throw new Error(id + ' is empty');
    }
    if (document.querySelector('h1').textContent !== JSON.parse(document.getElementById('data').textContent).title) {
      throw new Error('the title is another');
    }
    if (document.documentElement.scrollWidth > innerWidth) throw new Error('wider than the window: ' + document.documentElement.scrollWidth);
    say('ok');
  } catch (error) {
    say('error ' + error.message);
  }
})();
</script>
"""


def intervals_of(text):
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL).group(1))
    return sum(len(stream["spans"]) // 3 for rank in data["timeline"]["ranks"] for stream in rank["streams"])


def main():
    program = browser.find()
    if program is None:
        return browser.skip()
    failures = []
    with tempfile.TemporaryDirectory(prefix="trainctl-page-") as folder:
        subprocess.run([sys.argv[1], folder], check=True, timeout=TIMEOUT_S)
        html, trace = os.path.join(folder, "from_a_recipe.html"), os.path.join(folder, "trace.json")
        told = subprocess.run([sys.argv[2], *PLAN, "--draw", "--html", html, "--trace", trace], check=True,
                              timeout=TIMEOUT_S, capture_output=True, text=True).stdout
        with open(trace, encoding="utf-8") as file:
            if not json.load(file)["traceEvents"]:
                failures.append("plan --trace writes a trace without events")
        if "\nrank 7 |" not in told or "\x1b" in told:
            failures.append("plan --draw does not draw eight ranks without colours into a pipe")
        profile = os.path.join(folder, "profile")

        def check(name, text, expected, hands, size="1400,1000"):
            path = os.path.join(folder, name + ".checked.html")
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            dom, problem = dom_of(program, path, profile, size)
            if not dom or "<html" not in dom:
                failures.append(f"{name}: nothing came back from {program}: {problem[-600:]}")
                return
            told = attribute(dom, "check"), attribute(dom, "hands")
            if not re.fullmatch(expected, told[0] or "") or told[1] != hands:
                failures.append(f"{name} at {size}: the page says {told}, expected ({expected!r}, {hands!r})")

        pages = sorted(name for name in os.listdir(folder) if name.endswith(".html"))
        for page in pages:
            with open(os.path.join(folder, page), encoding="utf-8") as file:
                text = file.read()
            expected = f"ok {intervals_of(text)} intervals"
            check(page[:-5], text.replace("</body>", HANDS + "</body>"), expected, "ok")
            if page == "everything.html":
                check("narrow", text.replace("</body>", HANDS + "</body>"), expected, "ok", "500,900")
                # The check itself can fail.
                check("damaged", text.replace('"timeline":{', '"timeline":{,', 1), "error .*JSON.*", None)
                check("incomplete", text.replace('"stages":[', '"no_stages":[', 1), "error .*", None)
        print(f"{len(pages)} pages in {program}")
    for failure in failures:
        print(failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
