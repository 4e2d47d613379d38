"""Does a change that should not alter results alter any bit?

    same_bits.sh OLD [NEW] [--only REGEX] [--quick] [--jobs N] [--keep DIR]
    same_bits.sh --self-test | --list

Runs the same recipes with the programs of two commits and compares metrics.jsonl and every tensor of every checkpoint,
by name, bit by bit. NEW is the working tree unless it is given. Prints a line per difference, at most a dozen per cell.
A predicted peak may come nearer to the measured one. A measured peak that differs is counted as a difference in memory,
which is not an error.

Exit codes: 0 the same, 1 something differs or a run failed, 2 the command line, 5 the environment.
"""
import argparse
import concurrent.futures
import contextlib
import ctypes
import fcntl
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading

import same_bits_cells
from read_checkpoint import (WIDTHS, Damaged, Piece, Tensor, UnknownFormat, assemble, pieces_of, read_checkpoint,
                             read_manifest)

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
RUN_SECONDS = 600
LINES_PER_CELL = 12
PR_SET_CHILD_SUBREAPER = 36


class Trouble(Exception):
    """What ends the program: a message and an exit code."""

    def __init__(self, message, exit_code):
        super().__init__(message)
        self.exit_code = exit_code


class Stopped(Exception):
    def __init__(self, number):
        super().__init__(signal.Signals(number).name)
        self.number = number


def say(text):
    print(f"same_bits: {text}", file=sys.stderr, flush=True)


# ---- processes ---------------------------------------------------------------------------------


class Processes:
    """Starts programs and leaves none behind. What a killed launcher orphans becomes our child, and is killed too."""

    def __init__(self):
        self._lock = threading.Lock()
        self._running = set()
        self._closed = False
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def run(self, command, timeout=None, **how):
        """The exit code; subprocess.TimeoutExpired after `timeout` seconds, Stopped once closed."""
        with self._lock:
            if self._closed:
                raise Stopped(signal.SIGTERM)
            # In a session of its own, so that Ctrl-C reaches us alone.
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, **how)
            self._running.add(process)
        try:
            return process.wait(timeout)
        finally:
            process.kill()
            process.wait()
            with self._lock:
                self._running.discard(process)

    def close(self):
        """Kills everything that runs; later calls of `run` raise."""
        with self._lock:
            self._closed = True
            for process in self._running:
                process.kill()

    def kill_orphans(self):
        """Call when no `run` is under way."""
        while children := children_of(os.getpid()):
            for child in children:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)


def children_of(parent):
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
            if int(file.read().rpartition(")")[2].split()[1]) == parent:
                found.append(int(name))
    return found


# ---- programs ----------------------------------------------------------------------------------


def programs_in(folder):
    folder = os.path.abspath(folder)
    for name in ("trainctl", "trainctl-worker"):
        if not os.access(os.path.join(folder, name), os.X_OK):
            raise Trouble(f"{os.path.join(folder, name)} is not there", 5)
    return folder


def commit_of(name):
    command = ["git", "-C", ROOT, "rev-parse", "--verify", "--quiet", "--end-of-options", name + "^{commit}"]
    found = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if found.returncode != 0:
        raise Trouble(f"'{name}' is no commit of {ROOT}", 2)
    return found.stdout.strip()


def checked(processes, *command):
    status = processes.run(command, stdout=sys.stderr.fileno())
    if status != 0:
        raise Trouble(f"exit code {status} of: {' '.join(command)}", 5)


def build_tree(processes):
    checked(processes, os.path.join(ROOT, "dev"), "build")
    return programs_in(os.path.join(ROOT, "build", "release", "bin"))


def build_commit(processes, sha):
    """The programs of a commit, from the cache or built by its own ./dev; only they are kept."""
    cache = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "trainctl", "same-bits")
    folder = os.path.join(cache, sha)
    tree, programs = os.path.join(folder, "tree"), os.path.join(folder, "bin")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.isdir(programs):
            say(f"building {sha[:12]}")
            shutil.rmtree(tree, ignore_errors=True)
            checked(processes, "git", "clone", "--quiet", "--shared", "--no-checkout", ROOT, tree)
            checked(processes, "git", "-C", tree, "checkout", "--quiet", "--detach", sha)
            checked(processes, os.path.join(tree, "dev"), "build")
            os.rename(os.path.join(tree, "build", "release", "bin"), programs)
            shutil.rmtree(tree)
    return programs_in(programs)


# ---- runs --------------------------------------------------------------------------------------


class Runner:
    def __init__(self, processes, work):
        self.processes = processes
        self.work = work
        os.mkdir(os.path.join(work, "no-config"))
        same_bits_cells.write_inputs(work)
        # No calibration of this machine, no variable that a test or a user has set.
        foreign = ("TRAINCTL_", "SLURM_", "OMP_", "MKL_")
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
        self.environment.update(XDG_CONFIG_HOME=os.path.join(work, "no-config"), NO_COLOR="1")

    def run(self, cell, programs, folder):
        """Leaves the runs of a cell in `folder`. What went wrong, or None."""
        os.makedirs(folder)
        errors = os.path.join(folder, "stderr")
        for command in cell.commands:
            run = os.path.join(folder, command.run)
            what = [os.path.join(self.work, cell.recipe), "--run-dir", run] if command.verb == "launch" else [run]
            line = [os.path.join(programs, "trainctl"), command.verb, *what, *command.options]
            for setting in command.settings:
                line += ["--set", setting.replace("{runs}", folder)]
            with open(errors, "wb") as stderr:
                try:
                    status = self.processes.run(line, RUN_SECONDS, stdout=stderr, stderr=stderr, env=self.environment,
                                                cwd=self.work)
                except subprocess.TimeoutExpired:
                    return f"{command.verb} {command.run} did not end within {RUN_SECONDS} s"
            if status != command.exit_code:
                return f"{command.verb} {command.run} ended with {status}, not {command.exit_code}:\n{tail(errors)}"
        return None


def tail(path, lines=15):
    with open(path, encoding="utf-8", errors="replace") as file:
        return "".join("    " + line for line in file.readlines()[-lines:]).rstrip()


# ---- comparison --------------------------------------------------------------------------------


class Outcome:
    """What the comparison of a cell has found."""

    def __init__(self):
        self.differences = []  # lines
        self.memory = []  # lines
        self.notes = []  # lines that count as nothing
        self.tensors = 0
        self.bytes = 0


FLOATS = {"F64": "<d", "F32": "<f", "F16": "<e"}


def value_of(raw, dtype):
    if dtype == "BF16":
        return struct.unpack("<f", b"\0\0" + raw)[0]
    if dtype in FLOATS:
        return struct.unpack(FLOATS[dtype], raw)[0]
    return int.from_bytes(raw, "little", signed=dtype.startswith("I"))


def place_of(raw, dtype):
    """The value's distance from zero in ulps, signed; of integers the value."""
    if dtype not in FLOATS and dtype != "BF16":
        return value_of(raw, dtype)
    bits, sign = int.from_bytes(raw, "little"), 1 << (8 * len(raw) - 1)
    return -(bits - sign) if bits & sign else bits


def ulps(old, new, dtype):
    return abs(place_of(old, dtype) - place_of(new, dtype))


def told(old, new, dtype):
    return f"{value_of(old, dtype)!r} -> {value_of(new, dtype)!r}, {ulps(old, new, dtype)} ulp"


def index_of(flat, shape):
    index = []
    for extent in reversed(shape):
        flat, i = divmod(flat, extent)
        index.insert(0, i)
    return index


def compare_tensors(old, new):
    """How two tensors differ, or None."""
    if (old.dtype, old.shape) != (new.dtype, new.shape):
        return f"{old.dtype} {list(old.shape)} -> {new.dtype} {list(new.shape)}"
    if old.data == new.data:
        return None
    width = WIDTHS[old.dtype]
    elements = range(0, len(old.data), width)
    different = [i for i in elements if old.data[i:i + width] != new.data[i:i + width]]
    first = slice(different[0], different[0] + width)
    return (f"{len(different)} of {len(elements)} elements, the first at {index_of(different[0] // width, old.shape)}: "
            f"{told(old.data[first], new.data[first], old.dtype)}")


def in_both(what, old, new, outcome):
    """Yields the keys that both have; reports the others."""
    for key in [*old, *(key for key in new if key not in old)]:
        if key in old and key in new:
            yield key
        else:
            outcome.differences.append(f"{what}{key}: only in {'old' if key in old else 'new'}")


def flat_fields(record, prefix=""):
    for key, value in record.items():
        if isinstance(value, dict):
            yield from flat_fields(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def read_metrics(path):
    """{step: line}"""
    with open(path, encoding="utf-8") as file:
        return {json.loads(line)["step"]: line for line in file}


def compare_metrics(run, old_path, new_path, outcome):
    old, new = read_metrics(old_path), read_metrics(new_path)
    for step in in_both(f"{run}/metrics.jsonl step ", old, new, outcome):
        outcome.bytes += len(old[step])
        if old[step] == new[step]:
            continue
        what = f"{run}/metrics.jsonl step {step}"
        old_fields, new_fields = dict(flat_fields(json.loads(old[step]))), dict(flat_fields(json.loads(new[step])))
        before = len(outcome.differences)
        for key in in_both(f"{what} ", old_fields, new_fields, outcome):
            a, b = old_fields[key], new_fields[key]
            if type(a) is float and type(b) is float and a != b:
                outcome.differences.append(f"{what} {key}: {told(struct.pack('<d', a), struct.pack('<d', b), 'F64')}")
            elif a != b:
                outcome.differences.append(f"{what} {key}: {a!r} -> {b!r}")
        if len(outcome.differences) == before:
            outcome.differences.append(f"{what}: the same values, written differently: {old[step]!r} -> {new[step]!r}")


def compare_checkpoints(run, old_folder, new_folder, outcome):
    old_steps, new_steps = (sorted(name for name in os.listdir(folder) if name.startswith("step-"))
                            for folder in (old_folder, new_folder))
    for step in in_both(f"{run}/", dict.fromkeys(old_steps), dict.fromkeys(new_steps), outcome):
        old_manifest, old = read_checkpoint(os.path.join(old_folder, step))
        new_manifest, new = read_checkpoint(os.path.join(new_folder, step))
        for counter in ("step", "updates", "tokens"):
            a, b = old_manifest["state"].get(counter), new_manifest["state"].get(counter)
            if a != b:
                outcome.differences.append(f"{run}/{step} state.{counter}: {a} -> {b}")
        for name in in_both(f"{run}/{step} ", old, new, outcome):
            outcome.tensors += 1
            outcome.bytes += len(old[name].data)
            difference = compare_tensors(old[name], new[name])
            if difference is not None:
                outcome.differences.append(f"{run}/{step} {name}: {difference}")


def compare_reports(run, old_path, new_path, outcome):
    peaks = []
    for path in (old_path, new_path):
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
        # Builds that do not tell a library's scratch apart have it among what was measured.
        peaks.append((report["predicted_peak_bytes"],
                      report["measured_peak_bytes"] + report.get("library_scratch_bytes", 0)))
    (old_predicted, old_measured), (new_predicted, new_measured) = peaks
    if old_measured != new_measured:
        outcome.memory.append(f"{run}/report.json measured peak: {old_measured} -> {new_measured} bytes")
    if old_predicted != new_predicted:
        old_error, new_error = abs(old_predicted - old_measured), abs(new_predicted - new_measured)
        line = (f"{run}/report.json predicted peak: {old_predicted} -> {new_predicted} bytes, "
                f"{old_error} -> {new_error} off the measured one")
        (outcome.differences if new_error > old_error else outcome.notes).append(line)


def compare_runs(run, old, new, outcome):
    compare_metrics(run, os.path.join(old, "metrics.jsonl"), os.path.join(new, "metrics.jsonl"), outcome)
    compare_checkpoints(run, os.path.join(old, "checkpoints"), os.path.join(new, "checkpoints"), outcome)
    compare_reports(run, os.path.join(old, "report.json"), os.path.join(new, "report.json"), outcome)


def compare_cell(cell, old, new):
    outcome = Outcome()
    for run in dict.fromkeys(command.run for command in cell.commands):
        try:
            compare_runs(run, os.path.join(old, run), os.path.join(new, run), outcome)
        except (Damaged, OSError, ValueError, KeyError, struct.error) as error:
            outcome.differences.append(f"{run} cannot be read: {error!r}")
    return outcome


def run_cell(runner, number, cell, programs, keep):
    """Both sides of a cell and their comparison."""
    folder = os.path.join(runner.work, f"{number:04}")
    outcome = Outcome()
    sides = [os.path.join(folder, side) for side in ("old", "new")]
    for side, where in zip(sides, programs):
        failure = runner.run(cell, where, side)
        if failure is not None:
            outcome.differences.append(f"{os.path.basename(side)}: {failure}")
    if not outcome.differences:
        outcome = compare_cell(cell, *sides)
    if not keep:
        shutil.rmtree(folder)
    return outcome


class Tally:
    def __init__(self, num_cells):
        self.num_cells = num_cells
        self.cells = self.tensors = self.bytes = self.differences = self.memory = 0

    def add(self, cell, outcome):
        self.cells += 1
        self.tensors += outcome.tensors
        self.bytes += outcome.bytes
        self.differences += len(outcome.differences)
        self.memory += len(outcome.memory)
        for word, lines in (("DIFFERS", outcome.differences), ("MEMORY", outcome.memory), ("note", outcome.notes)):
            for line in lines[:LINES_PER_CELL]:
                print(f"{word} {cell.name}: {line}", flush=True)
            if len(lines) > LINES_PER_CELL:
                print(f"{word} {cell.name}: and {len(lines) - LINES_PER_CELL} more", flush=True)
        if self.cells % 25 == 0:
            say(f"{self.cells} of {self.num_cells} cells, {self.differences} differences")

    def __str__(self):
        memory = f", {self.memory} in memory" if self.memory else ""
        return (f"{self.cells} cells, {self.tensors:,} tensors, {self.bytes:,} bytes compared: "
                f"{self.differences} differences{memory}")


def compare_all(runner, cells, programs, jobs, keep):
    tally = Tally(len(cells))
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        try:
            waiting = {pool.submit(run_cell, runner, number, cell, programs, keep): cell
                       for number, cell in enumerate(cells)}
            for done in concurrent.futures.as_completed(waiting):
                tally.add(waiting[done], done.result())
        except BaseException:
            runner.processes.close()
            pool.shutdown(cancel_futures=True)
            raise
    return tally


# ---- self-test ---------------------------------------------------------------------------------


def expect(condition, text):
    if not condition:
        raise Trouble(f"self-test: {text}", 1)


def check_reader():
    """Boxes and flat ranges give the same tensor; an element that is absent or there twice is found."""
    shape, whole = (2, 3, 4), bytes(range(24))
    boxes = [Piece(shape, (0, 0, 0), (2, 3, 1), 0, 0), Piece(shape, (0, 0, 1), (2, 3, 3), 1, 0)]
    read = assemble("boxes", "U8", shape, boxes, [whole[::4], bytes(b for b in whole if b % 4)])
    expect(read == Tensor("U8", shape, whole), f"boxes are read as {read}")
    ranges = [Piece((24,), (0,), (8,), 0, 1), Piece((24,), (8,), (16,), 1, 0)]
    files = [b"x" + whole[:8], whole[8:]]
    read = assemble("ranges", "U8", shape, ranges, files)
    expect(read == Tensor("U8", shape, whole), f"ranges are read as {read}")
    for pieces in (ranges[:1], [*ranges, ranges[0]]):
        with contextlib.suppress(Damaged):
            assemble("damaged", "U8", shape, pieces, files)
            raise Trouble(f"self-test: not seen to be damaged: {pieces}", 1)
    distance = ulps(struct.pack("<f", -1e-45), struct.pack("<f", 1e-45), "F32")
    expect(distance == 2, f"from one side of zero to the other is {distance} ulp, not 2")


def check_peaks(folder):
    """What counts as a difference, what as one in memory, and what as nothing."""
    cases = [((100, 90), (100, 90), (0, 0, 0)), ((100, 90), (95, 90), (0, 0, 1)), ((100, 90), (101, 90), (1, 0, 0)),
             ((100, 90), (100, 95), (0, 1, 0)), ((100, 90), (105, 95), (0, 1, 1))]
    for *peaks, wanted in cases:
        paths = [os.path.join(folder, side) for side in ("old.json", "new.json")]
        for path, (predicted, measured) in zip(paths, peaks):
            with open(path, "w", encoding="utf-8") as file:
                json.dump({"predicted_peak_bytes": predicted, "measured_peak_bytes": measured}, file)
        outcome = Outcome()
        compare_reports("run", *paths, outcome)
        counts = (len(outcome.differences), len(outcome.memory), len(outcome.notes))
        expect(counts == wanted, f"peaks {peaks} are counted as {counts}, not {wanted}")


def plant_bit(checkpoint):
    """Flips the lowest bit of an element in the second piece of some moment: (tensor, index of the element)."""
    manifest = read_manifest(checkpoint)
    entry = [entry for entry in manifest["tensors"] if "exp_avg/" in entry["name"] and len(entry["pieces"]) > 1][-1]
    piece = pieces_of(manifest, entry)[1]
    file, begin = manifest["files"][piece.file], next(piece.rows())[0]
    with open(os.path.join(checkpoint, file["name"]), "r+b") as data:
        at = file["data_offset"] + piece.offset_bytes
        data.seek(at)
        old = data.read(1)[0]
        data.seek(at)
        data.write(bytes([old ^ 1]))
    return entry["name"], index_of(begin, entry["shape"])


def plant_digit(path):
    """Changes a digit of the first step's grad_norm."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    at = re.search(r'"grad_norm":[0-9]+\.([0-9])', text).start(1)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text[:at] + ("1" if text[at] != "1" else "2") + text[at + 1:])


def self_test(runner, programs):
    check_reader()
    check_peaks(runner.work)
    wanted = (r"matrix/(fp32 dp_replicate=1 dp_shard=2 zero_stage=3 accumulation=1 recompute=none$|"
              r"bf16 dp_replicate=2 dp_shard=1 zero_stage=0 accumulation=4 recompute=full tied prefetch$)")
    cells = [cell for cell in same_bits_cells.all_cells() if re.search(wanted, cell.name)]
    expect(len(cells) == 2, f"{len(cells)} cells, not two")
    tally = compare_all(runner, cells, (programs, programs), 1, True)
    expect(tally.differences == tally.memory == 0 and tally.tensors > 0, f"the same programs twice: {tally}")

    cell, old, step = cells[0], os.path.join(runner.work, "0000", "old"), "step-00000002"
    planted = os.path.join(runner.work, "planted-bit")
    shutil.copytree(old, planted)
    tensor, index = plant_bit(os.path.join(planted, "run", "checkpoints", step))
    found = compare_cell(cell, old, planted).differences
    place = rf"run/{step} {re.escape(tensor)}: 1 of \d+ elements, the first at {re.escape(str(index))}"
    expect(len(found) == 1 and re.fullmatch(f"{place}: .*, 1 ulp", found[0]), f"bit flipped at {place}: {found}")
    print(f"found: {found[0]}")

    planted = os.path.join(runner.work, "planted-digit")
    shutil.copytree(old, planted)
    plant_digit(os.path.join(planted, "run", "metrics.jsonl"))
    found = compare_cell(cell, old, planted).differences
    expect(len(found) == 1 and found[0].startswith("run/metrics.jsonl step 1 grad_norm: "), f"a changed digit: {found}")
    print(f"found: {found[0]}")

    manifest = os.path.join(planted, "run", "checkpoints", step, "manifest.json")
    with open(manifest, encoding="utf-8") as file:
        text = file.read()
    with open(manifest, "w", encoding="utf-8") as file:
        file.write(re.sub(r"checkpoint\.v\d+", "checkpoint.v99", text, count=1))
    try:
        compare_cell(cell, old, planted)
        raise Trouble("self-test: a manifest of an unknown format was read", 1)
    except UnknownFormat as error:
        expect("checkpoint.v99" in str(error), f"the error does not name the format: {error}")
    print(f"self-test passed: {tally}")
    return 0


# ---- main --------------------------------------------------------------------------------------


def arguments():
    parser = argparse.ArgumentParser(prog="same_bits.sh", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commits", nargs="*", metavar="COMMIT",
                        help="OLD, then NEW; without those that --old-bin and --new-bin stand for")
    parser.add_argument("--old-bin", metavar="DIR", help="programs that are there already, instead of OLD")
    parser.add_argument("--new-bin", metavar="DIR", help="the same for NEW")
    parser.add_argument("--only", metavar="REGEX", help="the cells whose name matches")
    parser.add_argument("--quick", action="store_true", help="two cells of each kind of layout and three longer runs")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="cells that run at the same time (default: 1)")
    parser.add_argument("--keep", metavar="DIR", help="make all runs in this new folder and leave them there")
    parser.add_argument("--list", action="store_true", help="print the cells that are selected, and how they are run")
    parser.add_argument("--self-test", action="store_true", help="see that planted differences are found; with the "
                        "programs of --new-bin, or of the working tree")
    args = parser.parse_args()
    most = (args.old_bin is None) + (args.new_bin is None)
    if args.self_test or args.list:
        if args.commits or args.old_bin:
            parser.error("no commit and no --old-bin with --self-test or --list")
    elif len(args.commits) > most:
        parser.error(f"{len(args.commits)} commits given, at most {most} expected")
    elif not args.commits and args.old_bin is None:
        parser.error("OLD is missing: a commit, or --old-bin DIR")
    if args.jobs < 1:
        parser.error("--jobs is at least 1")
    return parser, args


def selected(parser, args):
    try:
        wanted = re.compile(args.only or "")
    except re.error as error:
        parser.error(f"--only: {error}")
    cells = [cell for cell in same_bits_cells.all_cells()
             if wanted.search(cell.name) and (cell.quick or not args.quick)]
    if not cells:
        parser.error("no cell is selected; --list shows all")
    return cells


def programs_of(processes, args):
    """(folder of OLD's programs, folder of NEW's)"""
    commits = [commit_of(name) for name in args.commits]
    old = programs_in(args.old_bin) if args.old_bin else build_commit(processes, commits.pop(0))
    if args.new_bin:
        return old, programs_in(args.new_bin)
    return old, build_commit(processes, commits.pop(0)) if commits else build_tree(processes)


@contextlib.contextmanager
def work_folder(keep):
    if keep:
        os.makedirs(keep)
        yield os.path.abspath(keep)
        return
    folder = tempfile.mkdtemp(prefix="trainctl-same-bits-")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def that_both_know(cells, programs):
    """Without cells whose recipes have a field that one of the builds lacks."""
    schemas = [json.loads(subprocess.run([os.path.join(folder, "trainctl"), "recipe", "schema"], check=True,
                                         capture_output=True, text=True).stdout) for folder in programs]

    def has(schema, field):
        for key in field.split(".") if field else ():
            schema = schema.get("properties", {}).get(key)
            if schema is None:
                return False
        return True

    kept = [cell for cell in cells if all(has(schema, cell.needs) for schema in schemas)]
    if len(kept) < len(cells):
        say(f"{len(cells) - len(kept)} cells left out: one of the builds lacks "
            + ", ".join(sorted({cell.needs for cell in cells if cell not in kept})))
    return kept


def compare(processes, args, cells):
    if args.self_test:
        programs = programs_in(args.new_bin) if args.new_bin else build_tree(processes)
    else:
        programs = programs_of(processes, args)
    with work_folder(args.keep) as work:
        try:
            runner = Runner(processes, work)
            if args.self_test:
                return self_test(runner, programs)
            tally = compare_all(runner, that_both_know(cells, programs), programs, args.jobs, bool(args.keep))
        finally:
            processes.close()
            processes.kill_orphans()
    print(tally)
    return 1 if tally.differences else 0


def stop(number, _):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Stopped(number)


def main():
    parser, args = arguments()
    cells = selected(parser, args)
    if args.list:
        for cell in cells:
            print(cell.describe())
        print(f"{len(cells)} cells")
        return 0
    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
    processes = Processes()
    try:
        return compare(processes, args, cells)
    except Trouble as error:
        say(error)
        return error.exit_code
    except Stopped as error:
        say(f"stopped by {error}")
        return 128 + error.number
    except (UnknownFormat, OSError) as error:
        say(error)
        return 5
    finally:
        processes.close()
        processes.kill_orphans()


if __name__ == "__main__":
    sys.exit(main())
