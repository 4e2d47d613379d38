// `trainctl generate`, `trainctl eval`: one-process jobs on a checkpoint of a run or on a Hugging Face
// folder. They become the worker program, since this one never loads LibTorch.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "apps/trainctl/command.h"
#include "apps/trainctl/option_checks.h"
#include "apps/trainctl/worker_program.h"
#include "base/files.h"
#include "base/folder_paths.h"
#include "base/status.h"
#include "base/units.h"
#include "launcher/printable_text.h"

namespace trainctl::cli {
namespace {

struct InferenceOptions {
  ModelChoice model;
  std::string prompt;
  int64_t max_tokens = 200;
  double temperature = 0.8;
  double top_p = 1;
  int64_t seed = 0;
  std::string memory;
  std::string data;
  std::string text_field;
  std::string prompt_field;
  int64_t seq_len = 0;  // 0 if not given
};

absl::StatusOr<std::vector<std::string>> ArgsOf(const std::string& verb, const ModelSource& model,
                                                const InferenceOptions& options) {
  TRAINCTL_ASSIGN_OR_RETURN(std::vector<std::string> args, OneProcessArgs(verb, model));
  if (options.memory.empty()) return args;
  TRAINCTL_ASSIGN_OR_RETURN(const int64_t bytes, ParseBytes(options.memory));
  if (bytes <= 0) return UsageError("--memory must be positive");
  args.insert(args.end(), {"--weight-bytes", absl::StrCat(bytes)});
  return args;
}

void AddMemory(CLI::App& verb, InferenceOptions& options) {
  verb.add_option("--memory", options.memory,
                  "Maximum memory for weights, such as \"8GiB\" (default: 70% of free memory). A larger "
                  "model has its blocks reread from disk whenever they are needed")
      ->type_name("SIZE");
}

absl::StatusOr<ExitCode> Generate(const InferenceOptions& options, const Output& output) {
  TRAINCTL_ASSIGN_OR_RETURN(const ModelSource model, FindModel(options.model));
  TRAINCTL_ASSIGN_OR_RETURN(std::vector<std::string> args, ArgsOf("generate", model, options));
  args.insert(args.end(),
              {"--prompt", options.prompt, "--max-tokens", absl::StrCat(options.max_tokens), "--temperature",
               absl::StrCat(options.temperature), "--top-p", absl::StrCat(options.top_p), "--seed",
               absl::StrCat(options.seed), "--form", output.json ? "json" : "text"});
  return ExecWorker(args);
}

// UsageError if the options do not fit the model.
absl::Status CheckEvalOptions(const InferenceOptions& options, const ModelSource& model) {
  if (!options.data.empty() && !PathExists(options.data)) {
    return UsageError(absl::StrCat("--data: no such file: ", options.data));
  }
  if (model.is_folder() && options.data.empty()) {
    return UsageError(absl::StrCat("evaluating a Hugging Face folder requires --data FILE, because ",
                                   options.model.path, " has no evaluation sets"));
  }
  if (!model.is_folder() && options.seq_len > 0) {
    return UsageError(absl::StrCat("--seq-len applies only to a Hugging Face folder; ", model.run,
                                   " is evaluated with its own data.seq_len"));
  }
  return absl::OkStatus();
}

absl::StatusOr<ExitCode> Eval(const InferenceOptions& options) {
  TRAINCTL_ASSIGN_OR_RETURN(const ModelSource model, FindModel(options.model));
  TRAINCTL_RETURN_IF_ERROR(CheckEvalOptions(options, model));
  TRAINCTL_ASSIGN_OR_RETURN(std::vector<std::string> args, ArgsOf("eval", model, options));
  if (!options.data.empty()) {
    TRAINCTL_ASSIGN_OR_RETURN(std::string path, AbsolutePath(options.data));
    args.insert(args.end(), {"--data", std::move(path), "--text-field", options.text_field, "--prompt-field",
                             options.prompt_field});
  }
  if (options.seq_len > 0) args.insert(args.end(), {"--seq-len", absl::StrCat(options.seq_len)});
  // The worker says nothing before all batches are done, which may take a minute.
  std::fprintf(stderr, "evaluating %s\n", launcher::PrintableText(model.path()).c_str());
  return ExecWorker(args);
}

}  // namespace

void AddGenerate(CLI::App& app, Action& action) {
  CLI::App* verb =
      app.add_subcommand("generate", "Generate text from a run's checkpoint or a Hugging Face folder");
  auto options = std::make_shared<InferenceOptions>();
  AddModelChoice(*verb, options->model);
  verb->add_option("--prompt", options->prompt, "Text to continue")->required();
  verb->add_option("--max-tokens", options->max_tokens,
                   "Maximum number of tokens to generate; an end-of-text token stops earlier. When the "
                   "context exceeds max_position_embeddings tokens, its older half is dropped")
      ->check(WholeNumber(1, 1 << 20))
      ->type_name("N")
      ->capture_default_str();
  verb->add_option("--temperature", options->temperature,
                   "Sampling temperature; 0 always picks the most likely token")
      ->check(NumberWithin(0, 100))
      ->type_name("T")
      ->capture_default_str();
  verb->add_option("--top-p", options->top_p,
                   "Sample only from the most likely tokens whose probabilities add up to this value; 1 "
                   "allows all tokens")
      ->check(NumberWithin(0, 1))
      ->type_name("P")
      ->capture_default_str();
  verb->add_option("--seed", options->seed, "Random seed for sampling")
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
  CLI::App* verb = app.add_subcommand(
      "eval", "Compute the held-out loss of a checkpoint or a Hugging Face folder, as JSON");
  auto options = std::make_shared<InferenceOptions>();
  AddModelChoice(*verb, options->model);
  verb->add_option("--data", options->data,
                   "Evaluate this entire text, JSONL, Parquet or indexed file instead of the recipe's "
                   "evaluation sets. Required for a Hugging Face folder")
      ->type_name("FILE");
  verb->add_option("--text-field", options->text_field,
                   "Text field of a JSONL or Parquet file (default: as in the run's first training source, "
                   "or \"text\" for a Hugging Face folder)")
      ->needs("--data");
  verb->add_option("--prompt-field", options->prompt_field,
                   "Prompt field of a JSONL or Parquet file; prompts are excluded from the loss (default: as "
                   "in the run's first training source, or none for a Hugging Face folder)")
      ->needs("--data");
  verb->add_option("--seq-len", options->seq_len,
                   "Tokens per sequence, only for a Hugging Face folder (default: 2048, or "
                   "max_position_embeddings if smaller)")
      ->check(WholeNumber(1, 1 << 30))
      ->type_name("N");
  AddMemory(*verb, *options);
  AddJsonFlag(*verb);
  SetExample(*verb, "trainctl eval runs/latest");
  verb->callback([&action, options] { action = [options](const Output&) { return Eval(*options); }; });
}

}  // namespace trainctl::cli
