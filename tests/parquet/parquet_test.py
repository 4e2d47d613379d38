"""Parquet files as pyarrow writes them, read like the same documents as JSONL.

    python3 tests/parquet/parquet_test.py TRAINCTL PYARROW [unittest arguments]

PYARROW is the folder of the package that the plugin was built with; without it, or where this Python cannot import it,
everything is skipped (exit code 77).
"""
import glob
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import unittest

if len(sys.argv) < 3 or not sys.argv[2]:
    print("skipped: the build has no plugin for Parquet")
    sys.exit(77)
TRAINCTL, PYARROW = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
sys.path.insert(0, os.path.dirname(PYARROW))
try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

PLUGIN = os.path.join(os.path.dirname(TRAINCTL), "libtrainctl_parquet.so")
RECIPE = """recipe_version = 1
[run]
name = "rows"
[model]
preset = "toy-1m"
vocab = 257
[cluster]
devices_per_node = 1
[data]
seq_len = 32
[[data.train]]
files = ["{train}"]
prompt_field = "prompt"
[train]
steps = 4
batch_sequences = 4
precision = "fp32"
eval_every = 2
eval_batches = 2
[[data.eval]]
name = "held"
holdout = 0.1
"""
# Ways to write the same strings: the type of the column, and the writer's options.
WRITERS = {
    "snappy and dictionaries": (pa.string(), {"row_group_size": 100, "compression": "snappy"}),
    "zstd": (pa.string(), {"row_group_size": 70, "compression": "zstd", "use_dictionary": False}),
    "large strings, gzip": (pa.large_string(), {"compression": "gzip", "data_page_version": "2.0"}),
    "string views, brotli": (pa.string_view(), {"row_group_size": 1, "compression": "brotli"}),
    "dictionary type, lz4": (pa.dictionary(pa.int32(), pa.string()), {"row_group_size": 333, "compression": "lz4"}),
    "bytes, plain": (pa.binary(), {"compression": "none", "use_dictionary": False}),
    "small pages with checksums": (pa.string(), {"data_page_size": 512, "write_batch_size": 3,
                                                 "write_page_checksum": True, "dictionary_pagesize_limit": 2048}),
    "lengths apart": (pa.string(), {"use_dictionary": False, "column_encoding": {"text": "DELTA_LENGTH_BYTE_ARRAY"}}),
    "prefixes apart": (pa.string(), {"use_dictionary": False, "column_encoding": {"text": "DELTA_BYTE_ARRAY"}}),
}


def make_documents():
    rng = random.Random(5)
    words = ["tree", "naïve", "你好", "👋🏽", "a\u0000b", "\n", '"', "\\", "Ωmega", "</s>"]
    texts = ["".join(rng.choice(words) + " " for _ in range(rng.randrange(60))) for _ in range(500)]
    texts[7], texts[8], texts[300] = "", "x" * 300_000, ""
    texts += texts[:100]
    return [{"id": i, "prompt": rng.choice(["", "Q: ", "Wie geht es? "]), "text": text,
             "tags": [{"name": "n", "score": 0.5}] * (i % 3)} for i, text in enumerate(texts)]


def run(*args, code=0, variables=None, program=TRAINCTL, cwd=None):
    done = subprocess.run([program, *args], capture_output=True, text=True, timeout=120, cwd=cwd,
                          env={**os.environ, **(variables or {})})
    assert done.returncode == code, (args, done.returncode, done.stdout[-2000:], done.stderr[-2000:])
    return done


class Parquet(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="trainctl-parquet-")
        self.addCleanup(temporary.cleanup)
        self.folder = temporary.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, contents):
        with open(self.path(name), "wb") as file:
            file.write(contents)
        return self.path(name)

    def read(self, name):
        with open(self.path(name), "rb") as file:
            return file.read()

    def jsonl(self, name, documents):
        return self.write(name, "".join(json.dumps(d) + "\n" for d in documents).encode())

    def parquet(self, name, documents, kind=pa.string(), **options):
        table = pa.Table.from_pylist(documents)
        for column in ("text", "prompt"):
            if column in table.column_names:
                values = table.column(column).combine_chunks()
                if pa.types.is_dictionary(kind):
                    values = values.dictionary_encode()
                elif not pa.types.is_null(values.type):
                    values = values.cast(kind)
                table = table.set_column(table.column_names.index(column), column, values)
        pq.write_table(table, self.path(name), **options)
        return self.path(name)

    def prepare(self, data, out, *options, code=0):
        return run("data", "prepare", data, "--out", self.path(out), *options, code=code)

    def dataset(self, data, out, *options):
        self.prepare(data, out, *options)
        return self.read(out + ".bin"), self.read(out + ".idx")

    def error(self, data, *options, code=6):
        return self.prepare(data, "refused", *options, code=code).stderr

    def test_rows_become_the_tokens_of_the_same_lines(self):
        documents = make_documents()
        jsonl = self.jsonl("a.jsonl", documents)
        expected = self.dataset(jsonl, "jsonl")
        self.assertGreater(len(expected[0]), 300_000)
        for i, (name, (kind, options)) in enumerate(WRITERS.items()):
            with self.subTest(name):
                path = self.parquet(f"{i}.parquet", documents, kind, **options)
                self.assertEqual(self.dataset(path, f"rows{i}"), expected)
        required = pa.Table.from_pylist(documents, pa.schema([pa.field("text", pa.string(), nullable=False)]))
        pq.write_table(required, self.path("required.parquet"))
        self.assertEqual(self.dataset(self.path("required.parquet"), "required"), expected)
        # The words of a tokenizer, and its tokens.
        first = self.path("0.parquet")
        for data, out in ((jsonl, "of_lines.json"), (first, "of_rows.json")):
            run("tokenizer", "train", data, "--vocab", "300", "--out", self.path(out), "--special", "<|endoftext|>")
        self.assertEqual(self.read("of_lines.json"), self.read("of_rows.json"))
        options = ["--tokenizer", self.path("of_rows.json"), "--end-of-document"]
        self.assertEqual(self.dataset(first, "t", *options), self.dataset(jsonl, "u", *options))
        report = json.loads(self.read("t.json"))["sources"][0]
        self.assertEqual(report["bytes"], os.path.getsize(first))
        self.assertEqual(report["documents"], sum(bool(d["text"]) for d in documents))

    def test_rows_become_the_batches_of_the_same_lines(self):
        documents = make_documents()[:200]
        batches = {}
        for data in (self.jsonl("a.jsonl", documents), self.parquet("a.parquet", documents, row_group_size=30)):
            recipe = self.write("recipe.toml", RECIPE.format(train=data).encode())
            batches[data] = [run("data", "batch", recipe, "--step", str(step), "--json").stdout for step in (1, 7)]
            batches[data].append(run("data", "batch", recipe, "--step", "9", "--json").stdout)
        of_lines, of_rows = batches.values()
        self.assertEqual(of_lines, of_rows)
        self.assertEqual(len(set(of_rows)), 3)

    def test_rows_train_and_evaluate_like_the_same_lines(self):
        documents = [d for d in make_documents() if len(d["text"]) < 1000]
        losses, evaluated = [], []
        for name, data in (("l", self.jsonl("a.jsonl", documents)), ("r", self.parquet("a.parquet", documents))):
            recipe = self.write("recipe.toml", RECIPE.format(train=data).encode())
            root = ["--set", f'run.root="{self.path(name)}"']
            run("launch", recipe, *root, "--set", "train.steps=2")
            folder = os.path.join(self.path(name), "latest")
            run("resume", folder, "--set", "train.steps=4")
            with open(os.path.join(folder, "metrics.jsonl"), encoding="utf-8") as file:
                losses.append([line["loss"] for line in map(json.loads, file) if "loss" in line])
            sets = json.loads(run("eval", folder, "--data", data).stdout)["sets"]
            evaluated.append([{**each, "name": None} for each in sets])
        self.assertEqual(losses[0], losses[1])
        self.assertGreaterEqual(len(losses[0]), 4)
        self.assertEqual(evaluated[0], evaluated[1])
        self.assertGreater(evaluated[0][0]["loss_tokens"], 0)

    def test_bad_rows_are_named_or_left_out(self):
        documents = make_documents()[:40]
        for i in (3, 17):
            documents[i]["text"] = None
        jsonl = self.jsonl("a.jsonl", documents)
        rows = self.parquet("a.parquet", documents, row_group_size=10)
        self.assertIn("a.jsonl:4:", self.error(jsonl))
        said = self.error(rows)
        self.assertIn("a.parquet: row 4: column 'text' is null; to skip such rows, use --on-bad-line skip", said)
        skip = ["--on-bad-line", "skip"]
        self.assertEqual(self.dataset(rows, "r", *skip), self.dataset(jsonl, "l", *skip))
        self.assertEqual(json.loads(self.read("r.json"))["sources"][0]["lines_left_out"], 2)
        # A recipe's prompts give the same error.
        documents[0]["prompt"] = None
        rows = self.parquet("b.parquet", documents)
        recipe = self.write("recipe.toml", RECIPE.format(train=rows).encode())
        said = run("data", "batch", recipe, "--step", "1", code=6).stderr
        self.assertIn("b.parquet: row 1: column 'prompt' is null; to skip such rows, use data.on_bad_line = \"skip\"", said)
        said = run("launch", recipe, "--dry-run", "--set", 'data.on_bad_line="skip"', "--set",
                   'data.long_documents="cut"').stderr
        self.assertIn("3 lines skipped", said)
        bad = pa.table({"text": pa.array([b"good", b"\xff\xfe", b"\xed\xa0\x80"])})
        pq.write_table(bad, self.path("c.parquet"))
        self.assertIn("c.parquet: row 2: column 'text' is not valid UTF-8", self.error(self.path("c.parquet")))
        self.assertEqual(self.dataset(self.path("c.parquet"), "c", *skip)[0], b"good")

    def test_columns_that_are_no_strings_are_named_with_those_that_there_are(self):
        rows = self.parquet("a.parquet", make_documents()[:9])
        said = self.error(rows, "--text-field", "content")
        self.assertIn("a.parquet: it has no column named 'content'; its columns are id (int64), prompt (string), "
                      "text (string), tags (list<element: struct<name: string, score: double>>)", said)
        for field in ("tags", "id"):
            self.assertIn(f"column '{field}' does not contain strings; the columns are id (int64)",
                          self.error(rows, "--text-field", field))
        self.assertIn("it has no column named 'tags.list", self.error(rows, "--text-field", "tags.list.element.name"))
        twice = pa.Table.from_arrays([pa.array(["a"])] * 2, names=["text", "text"])
        pq.write_table(twice, self.path("b.parquet"))
        self.assertIn("it has two columns named 'text'", self.error(self.path("b.parquet")))

    def test_kinds(self):
        rows = self.parquet("a.parquet", [{"text": "one"}, {"text": "two"}])
        expected = self.dataset(rows, "a")
        for name in ("4f1c0bd2", "rows.data"):  # as a hub's cache names files
            shutil.copy(rows, self.path(name))
        self.assertEqual(self.dataset(self.path("4f1c0bd2"), "b"), expected)
        self.assertIn('set kind = "parquet"', self.error(self.path("rows.data"), code=2))
        self.assertEqual(self.dataset(self.path("rows.data"), "c", "--kind", "parquet"), expected)
        self.assertIn('set kind = "parquet"', self.error(rows, "--kind", "jsonl", code=2))
        self.assertIn("does not begin with PAR1", self.error(self.write("d.txt", b"text"), "--kind", "parquet"))

    def test_files_that_are_no_parquet_are_refused(self):
        for name, contents, words in (
                ("empty", b"", "is empty"), ("html", b"<html>", "does not begin with PAR1"),
                ("pointer", b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 9\n",
                 "git lfs pull"),
                ("magic", b"PAR1", "magic.parquet:"), ("encrypted", b"PARE....PARE", "is encrypted")):
            self.assertIn(words, self.error(self.write(name + ".parquet", contents)))
        pq.write_table(pa.table({"text": pa.array([], pa.string())}), self.path("none.parquet"))
        self.assertIn("contain no text", self.error(self.path("none.parquet")))
        pq.write_table(pa.table({"text": pa.array([None, None], pa.string())}), self.path("nulls.parquet"))
        self.assertIn("row 1: column 'text' is null", self.error(self.path("nulls.parquet")))

    def test_damage_is_an_error_and_never_the_end_of_the_process(self):
        documents = [{"text": f"{i} " * 40, "prompt": ""} for i in range(60)]
        rows = self.parquet("a.parquet", documents, row_group_size=25, compression="snappy")
        expected = self.dataset(rows, "a")
        whole = self.read("a.parquet")
        for length in (8, 100, len(whole) // 2, len(whole) - 9, len(whole) - 1):
            self.assertIn("cut.parquet: ", self.error(self.write("cut.parquet", whole[:length])))
        rng = random.Random(11)
        refused = 0
        for _ in range(30):
            damaged = bytearray(whole)
            # The footer decides most.
            at = rng.randrange(4, len(whole)) if rng.random() < 0.4 else rng.randrange(len(whole) - 700, len(whole))
            damaged[at] = rng.randrange(256)
            path = self.write("damaged.parquet", bytes(damaged))
            done = subprocess.run([TRAINCTL, "data", "prepare", path, "--out", self.path("d"), "--force"],
                                  capture_output=True, text=True, timeout=60)
            self.assertIn(done.returncode, (0, 6), (at, damaged[at], done.stderr))
            if done.returncode == 6:
                self.assertIn("damaged.parquet", done.stderr)
                refused += 1
        self.assertGreater(refused, 5)
        # With page checksums, no damage goes unnoticed.
        self.parquet("b.parquet", documents, write_page_checksum=True, compression="none", use_dictionary=False)
        whole = self.read("b.parquet")
        at = whole.index(b"17 17 17")
        self.assertIn("after row 0: ", self.error(self.write("bit.parquet", whole[:at] + b"x" + whole[at + 1:])))
        self.assertEqual(expected, self.dataset(self.path("b.parquet"), "b"))

    def test_the_package_is_looked_for_and_named(self):
        rows = self.parquet("a.parquet", [{"text": "one"}])
        said = run("data", "prepare", rows, "--out", self.path("a"), code=5,
                   variables={"TRAINCTL_PYARROW": "/nowhere"}).stderr
        version = pa.__version__
        self.assertIn(f"reading {rows} requires the Python package pyarrow=={version}: pip install pyarrow=={version}", said)
        self.assertIn(f"COPY (FROM '{rows}') TO '{rows[:-8]}.jsonl'", said)
        self.assertIn("TRAINCTL_PYARROW=/nowhere", said)
        run("data", "prepare", rows, "--out", self.path("a"), variables={"TRAINCTL_PYARROW": PYARROW})
        # Another Arrow in LD_LIBRARY_PATH does not take the place of the plugin's.
        os.mkdir(self.path("other"))
        for library in glob.glob(os.path.join(PYARROW, "lib*.so.*")):
            self.write("other/" + os.path.basename(library), b"")
        run("data", "prepare", rows, "--out", self.path("a"), "--force", variables={"LD_LIBRARY_PATH": self.path("other")})
        # First a program without a plugin, then with a plugin that can search only a Python environment.
        os.mkdir(self.path("bin"))
        program = shutil.copy(TRAINCTL, self.path("bin"))
        nowhere = {"HOME": self.folder, "PATH": "/nowhere", "VIRTUAL_ENV": "", "LD_LIBRARY_PATH": ""}
        arguments = ["data", "prepare", rows, "--out", self.path("b")]
        said = run(*arguments, code=5, program=program, variables=nowhere).stderr
        self.assertIn("requires the plugin libtrainctl_parquet.so next to", said)
        if shutil.which("patchelf") is None:
            self.skipTest("no patchelf")
        plugin = shutil.copy(PLUGIN, self.path("bin"))
        subprocess.run(["patchelf", "--remove-rpath", plugin], check=True)
        said = run(*arguments, code=5, program=program, variables=nowhere).stderr
        self.assertIn(f"pip install pyarrow=={version}", said)
        packages = self.path("env/lib/python3.12/site-packages")
        os.makedirs(packages)
        os.symlink(PYARROW, os.path.join(packages, "pyarrow"))
        run(*arguments, program=program, variables={**nowhere, "VIRTUAL_ENV": self.path("env")})
        os.mkdir(self.path("env/bin"))
        self.write("env/bin/python3", b"")
        run(*arguments, "--force", program=program, variables={**nowhere, "PATH": "/nowhere:" + self.path("env/bin")})


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
