"""The checks of this folder can fail: each is shown a small tree with one thing wrong.

    python3 tests/checks/selftest.py
"""
import os
import tempfile
import unittest

import deps
import filesystem_errors
import firewall
import guides
import links
import prose
import python_names
import readme
import structure

DEPS = "# comment\nbase:\nrpc: base\nrun: base\n---- LibTorch begins here ----\ncomm: base\n"
SOUND = {
    "lib/DEPS": DEPS,
    "lib/base/a.h": "#include <string>\n",
    "lib/base/logging.cc": '#include <spdlog/spdlog.h>\n#include "base/a.h"\n',
    "lib/run/run.cc": '#include "base/a.h"\n',
    "lib/rpc/wire.h": '#include <grpcpp/channel.h>\n#include "base/a.h"\n',
    "lib/comm/comm.h": '#include <ATen/ATen.h>\n#include "base/a.h"\n',
    "lib/comm/comm.cc": '#include "comm/comm.h"\n',
    "apps/trainctl/main.cc": '#include <CLI/CLI.hpp>\n#include "run/run.h"\n',
    "lib/run/run.h": "",
}


class Checks(unittest.TestCase):
    def tree(self, **changed):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        for path, text in {**SOUND, **changed}.items():
            full = os.path.join(folder.name, path)
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, "w", encoding="utf-8") as file:
                file.write(text)
        return folder.name

    def one(self, found, words):
        self.assertEqual(len(found), 1, found)
        self.assertIn(words, found[0])

    def test_a_sound_tree_passes(self):
        self.assertEqual(deps.violations(self.tree()), [])
        self.assertEqual(firewall.check_sources(self.tree()), [])

    def test_an_include_that_deps_does_not_list(self):
        self.one(deps.violations(self.tree(**{"lib/base/b.cc": '#include "run/run.h"\n'})), "does not list 'run'")

    def test_a_module_without_a_line(self):
        self.one(deps.violations(self.tree(**{"lib/new/b.cc": '#include "base/a.h"\n'})), "has no line")

    def test_deps_across_the_line(self):
        found = deps.violations(self.tree(**{"lib/DEPS": DEPS.replace("run: base", "run: base comm")}))
        self.one(found, "below it")

    def test_a_line_that_lists_too_much(self):
        found = deps.violations(self.tree(**{"lib/run/run.cc": "", "apps/trainctl/main.cc": ""}))
        self.one(found, "'run' lists 'base' and includes nothing of it")

    def test_deps_in_a_cycle(self):
        found = deps.violations(self.tree(**{"lib/DEPS": DEPS.replace("base:\n", "base: run\n", 1)}))
        self.one(found, "comes later")

    def test_a_module_on_rpc(self):
        found = deps.violations(self.tree(**{"lib/DEPS": DEPS.replace("run: base", "run: base rpc")}))
        self.one(found, "only apps/")

    def test_the_command_line_on_libtorch(self):
        found = deps.violations(self.tree(**{"apps/trainctl/b.cc": '#include "comm/comm.h"\n'}))
        self.one(found, "below LibTorch's line")

    def test_a_module_on_a_program(self):
        found = deps.violations(self.tree(**{"lib/run/b.cc": '#include "apps/trainctl/main.cc"\n'}))
        self.one(found, "neither programs nor tests")

    def test_libtorch_above_the_line(self):
        found = firewall.check_sources(self.tree(**{"lib/run/run.h": "#include <c10/core/Device.h>\n"}))
        self.assertEqual(len([line for line in found if "LibTorch is not for this file" in line]), 1, found)
        # Whoever includes it reads LibTorch too.
        self.assertTrue(any(line.startswith("apps/trainctl/main.cc reads LibTorch") for line in found), found)

    def test_the_whole_of_libtorch(self):
        found = firewall.check_sources(self.tree(**{"lib/comm/b.cc": "#include <torch/torch.h>\n"}))
        self.one(found, "narrow headers")

    def test_families_in_the_wrong_place(self):
        for header, family in (("grpcpp/server.h", "gRPC"), ("google/protobuf/message.h", "gRPC"),
                               ("proto/trainctl.pb.h", "gRPC"), ("spdlog/spdlog.h", "spdlog"),
                               ("fmt/format.h", "spdlog"), ("toml++/toml.h", "toml++"),
                               ("CLI/CLI.hpp", "CLI11"), ("openssl/x509.h", "OpenSSL"), ("gloo/context.h", "Gloo")):
            with self.subTest(header):
                found = firewall.check_sources(self.tree(**{"lib/run/run.cc": f'#include "{header}"\n'}))
                self.one(found, family)

    def test_one_file_that_reads_libtorch_and_grpc_through_headers(self):
        both = '#include "comm/comm.h"\n#include "rpc/wire.h"\n'
        found = firewall.check_sources(self.tree(**{"lib/comm/b.cc": both}))
        self.one(found, "and gRPC and protobuf")

    def test_names_in_the_documentation(self):
        page = "[a](a.md#b-c) `lib/run/run.h` `Suite.IsThere`\n\n## B: c\n"
        tests = "TEST_F(Suite, IsThere) {\n"
        sound = {"docs/a.md": page, "tests/unit/run/a_test.cc": tests}
        self.assertEqual(links.violations(self.tree(**sound)), [])
        for wrong in ("[a](b.md)", "[a](#c)", "[a](a.md#b)", "<<<<<<< HEAD", "`lib/run/gone.h`", "`Suite.IsGone`"):
            with self.subTest(wrong):
                found = links.violations(self.tree(**{**sound, "docs/a.md": page + wrong + "\n"}))
                self.one(found, "docs/a.md:4")
        self.one(links.violations(self.tree(**{**sound, "lib/run/run.cc": "// docs/gone.md; x/y@1 z\n// docs/gone.md\n"})), "run.cc:2")

    def test_the_dockerfile_of_the_guide(self):
        page = ("```dockerfile\nFROM debian AS build\nCOPY dev /src\nRUN ./dev bundle /opt/trainctl\nFROM debian\n"
                "COPY --from=build /opt/trainctl /opt/trainctl\nRUN pip install torch==2.11.0 \\\n  && /opt/trainctl/setup\n"
                'CMD ["trainctl", "doctor"]\n```\n')
        sound = {"docs/guide/operations.md": page, "dev": "  bundle) bundle ;;\n", "apps/trainctl/cmd_doctor.cc": "",
                 "apps/bundle/bundle.py": '(out / "setup")', "third_party/libtorch.sh": "VERSION=2.11.0\n"}
        self.assertEqual(guides.dockerfile_violations(self.tree(**sound)), [])
        for right, wrong in (("FROM debian AS build", "COPIES x\nFROM debian AS build"), ("COPY dev", "COPY gone"),
                             ("bundle /opt", "pack /opt"), ("--from=build", "--from=other"), ("2.11.0", "2.12.0"),
                             ("trainctl/setup", "trainctl/install"), ('"doctor"', '"nurse"'), ("FROM debian AS", "RUN true\nFROM debian AS")):
            with self.subTest(wrong):
                changed = {**sound, "docs/guide/operations.md": page.replace(right, wrong, 1)}
                self.assertEqual(len(guides.dockerfile_violations(self.tree(**changed))), 1)

    def test_names_of_other_tools(self):
        words = {"lib/recipe/foreign_words.cc": '{"max_steps", "train.steps"},\n'}
        row = "| `max_steps` | `training.steps` | `--lr` | `%s` |\n"
        sound = {**words, "docs/guide/migrate.md": (row % "train.steps").replace("`--lr`", "")}
        self.assertEqual(guides.migration_violations(self.tree(**sound)), [])
        self.one(guides.migration_violations(self.tree(**{**words, "docs/guide/migrate.md": row % "train.steps"})), "--lr")
        wrong = {**words, "docs/guide/migrate.md": (row % "train.tokens").replace("`--lr`", "")}
        self.one(guides.migration_violations(self.tree(**wrong)), "train.steps")

    def test_long_sentences_and_counted_phrases(self):
        counts = prose.written({(name, area): 0 for name, _, _ in prose.PATTERNS for area in prose.AREAS})
        sound = {"docs/a.md": "One `word word word` here. " + "Short sentence. " * 30 + "\n", "tests/checks/prose_counts.txt": counts}
        self.assertEqual(prose.violations(self.tree(**sound)), [])
        self.one(prose.violations(self.tree(**{**sound, "docs/a.md": "word " * 41 + "\n"})), "41 words")
        self.one(prose.violations(self.tree(**{**sound, "docs/a.md": "It is held against the list.\n"})), "held-against")
        self.one(prose.violations(self.tree(**{**sound, "lib/run/run.h": "int size;  // of the file\n"})), "fragment")
        self.one(prose.violations(self.tree(**{**sound, "lib/run/a.cc": 'f("nobody answers");\n'})), "nobody")
        code = "```text\nheld against\n```\n    held against\n`held against`\n"
        self.assertEqual(prose.violations(self.tree(**{**sound, "docs/a.md": code, "lib/run/a.cc": "// nobody\n"})), [])

    def test_calls_of_the_file_system_that_throw(self):
        sound = ("absolute(path, error)", "exists(path / name, ignored)", "exists(status)", "directory_iterator()",
                 "directory_iterator it(f(a, b), error)", "is_symlink(std::filesystem::symlink_status(at, error))")
        for call in sound:
            tree = self.tree(**{"lib/run/run.cc": "x = std::filesystem::%s;\n" % call})
            self.assertEqual(filesystem_errors.violations(tree), [], call)
        for call in ("absolute(path)", "exists(path / name)", "current_path()", "directory_iterator it(path)"):
            with self.subTest(call):
                tree = self.tree(**{"lib/run/run.cc": "x = std::filesystem::%s;\n" % call})
                self.one(filesystem_errors.violations(tree), "lib/run/run.cc:1")
        loop = self.tree(**{"apps/trainctl/b.cc": "for (const auto& e : std::filesystem::directory_iterator(p, error)) {}\n"})
        self.one(filesystem_errors.violations(loop), "a loop over a folder")

    def test_scripts_that_hide_a_module_of_python(self):
        self.assertEqual(python_names.violations(self.tree(**{"tests/bench/tokens.py": ""})), [])
        self.one(python_names.violations(self.tree(**{"tests/bench/tokenize.py": ""})), "tests/bench/tokenize.py")

    def test_what_is_coupled_is_counted(self):
        source = ("// BuildGraph( in a comment\nvoid F(const model::Architecture& spec,\n    const Ledger& ledger);\n"
                  "void G(const Ledger& ledger) { BuildGraph(HeadBlock(spec)); }\n")
        tree = {"lib/nn/a.cc": source, "lib/model/a.cc": source, "lib/nn/b.cc": '#include "recipe/recipe.h"\n',
                "lib/recipe/recipe.h": "", "tests/checks/structure.txt": ""}
        counts = structure.count(self.tree(**tree))
        self.assertEqual(list(counts.values())[:4], [1, 1, 1, 2])
        self.assertEqual(counts["sources that see lib/recipe/recipe.h"], 1)
        tree["tests/checks/structure.txt"] = "# numbers\n" + "".join(f"{n} {what}\n" for what, n in counts.items())
        self.assertEqual(structure.violations(self.tree(**tree)), [])
        self.one(structure.violations(self.tree(**tree, **{"lib/nn/c.cc": "BuildGraph(x);\n"})), "more than the 1")
        self.one(structure.violations(self.tree(**{**tree, "lib/nn/a.cc": source.replace("HeadBlock", "Head")})), "lower")

    def test_blocks_of_a_readme(self):
        text = "# a\n```sh\none\n```\n<!-- not run: long -->\n```sh\ntwo\n```\n```text\nthree\n```\n"
        self.assertEqual(readme.blocks(text), [(3, None, "one\n"), (7, "long", "two\n")])

    def test_a_command_of_the_readme_that_fails(self):
        status, output = readme.run("echo before\nfalse\necho after\n", self.tree())
        self.assertNotEqual(status, 0)
        self.assertIn("\nbefore\n", "\n" + output)
        self.assertNotIn("\nafter\n", output)


if __name__ == "__main__":
    unittest.main()
