// `trainctl generate`, `trainctl eval`: one-process jobs on a checkpoint of a run. They
// become the worker program, since this one never loads LibTorch.

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "apps/trainctl/command.h"
#include "apps/trainctl/option_checks.h"
#include "apps/trainctl/worker_program.h"
#include "base/files.h"
#include "base/status.h"
#include "base/units.h"
#include "launcher/printable_text.h"

namespace trainctl::cli {
namespace {

struct OnRunOptions {
  CheckpointChoice checkpoint;
  std::string prompt;
  int64_t max_tokens = 200;
  double temperature = 0.8;
  double top_p = 1;
  int64_t seed = 0;
  std::string memory;
  std::string data;
};

absl::StatusOr<std::vector<std::string>> ArgsOf(const std::string& verb, const OnRunOptions& options) {
  TRAINCTL_ASSIGN_OR_RETURN(std::vector<std::string> args, OneProcessArgs(verb, options.checkpoint));
  if (options.memory.empty()) return args;
  TRAINCTL_ASSIGN_OR_RETURN(const int64_t bytes, ParseBytes(options.memory));
  if (bytes <= 0) return UsageError("--memory must be more than nothing");
  args.insert(args.end(), {"--weight-bytes", absl::StrCat(bytes)});
  return args;
}

void AddMemory(CLI::App& verb, OnRunOptions& options) {
  verb.add_option(
          "--memory", options.memory,
          "Weights that may be in memory at a time (\"8GiB\"; default: seven tenths of what is free); "
          "where they are more, blocks are read anew each time that they are needed")
      ->type_name("SIZE");
}

absl::StatusOr<ExitCode> Generate(const OnRunOptions& options, const Output& output) {
  TRAINCTL_ASSIGN_OR_RETURN(std::vector<std::string> args, ArgsOf("generate", options));
  for (const auto& [name, value] :
       std::vector<std::pair<std::string, std::string>>{{"--prompt", options.prompt},
                                                        {"--max-tokens", absl::StrCat(options.max_tokens)},
                                                        {"--temperature", absl::StrCat(options.temperature)},
                                                        {"--top-p", absl::StrCat(options.top_p)},
                                                        {"--seed", absl::StrCat(options.seed)},
                                                        {"--form", output.json ? "json" : "text"}}) {
    args.push_back(name);
    args.push_back(value);
  }
  return ExecWorker(args);
}

absl::StatusOr<ExitCode> Eval(const OnRunOptions& options) {
  TRAINCTL_ASSIGN_OR_RETURN(std::vector<std::string> args, ArgsOf("eval", options));
  if (!options.data.empty()) {
    if (!PathExists(options.data))
      return UsageError(absl::StrCat("--data ", options.data, ": there is no such file"));
    args.insert(args.end(), {"--data", std::filesystem::absolute(options.data).string()});
  }
  // The worker says nothing before all batches are done, which may take a minute.
  const std::string& checkpoint = *std::next(std::find(args.begin(), args.end(), "--checkpoint"));
  std::fprintf(stderr, "evaluating %s\n", launcher::PrintableText(checkpoint).c_str());
  return ExecWorker(args);
}

}  // namespace

void AddGenerate(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("generate", "Let a checkpoint of a run continue a prompt");
  auto options = std::make_shared<OnRunOptions>();
  AddCheckpointChoice(*verb, options->checkpoint);
  verb->add_option("--prompt", options->prompt, "The text to continue")->required();
  verb->add_option(
          "--max-tokens", options->max_tokens,
          "How many tokens to write at most; the tokenizer's or the model's end-of-text token ends the text "
          "before. The model sees at most max_position_embeddings tokens: when they are full, the older "
          "half leaves and the text goes on from the newer half")
      ->check(WholeNumber(1, 1 << 20))
      ->type_name("N")
      ->capture_default_str();
  verb->add_option("--temperature", options->temperature, "0 takes the most likely token")
      ->check(NumberWithin(0, 100))
      ->type_name("T")
      ->capture_default_str();
  verb->add_option(
          "--top-p", options->top_p,
          "Sample only among the most likely tokens that have this probability together; 1 takes all")
      ->check(NumberWithin(0, 1))
      ->type_name("P")
      ->capture_default_str();
  verb->add_option("--seed", options->seed, "Of the sampling")
      ->check(WholeNumber(0))
      ->type_name("N")
      ->capture_default_str();
  AddMemory(*verb, *options);
  AddJsonFlag(*verb);
  SetExample(*verb, "trainctl generate runs/latest --prompt '#include <'");
  verb->callback([&action, options] {
    action = [options](const Output& output) { return Generate(*options, output); };
  });
}

void AddEval(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("eval", "Held-out loss of a checkpoint, as JSON");
  auto options = std::make_shared<OnRunOptions>();
  AddCheckpointChoice(*verb, options->checkpoint);
  verb->add_option(
          "--data", options->data,
          "A text, JSONL or indexed file, all of which is evaluated instead of the recipe's evaluation "
          "sets; JSONL has the fields of the first training source")
      ->type_name("FILE");
  AddMemory(*verb, *options);
  AddJsonFlag(*verb);
  SetExample(*verb, "trainctl eval runs/latest");
  verb->callback([&action, options] { action = [options](const Output&) { return Eval(*options); }; });
}

}  // namespace trainctl::cli
