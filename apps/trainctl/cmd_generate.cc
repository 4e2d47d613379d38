// `trainctl generate`, `trainctl eval`: one-process jobs on a run's newest good checkpoint. They
// become the worker program, since this one never loads LibTorch.

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "apps/trainctl/command.h"
#include "apps/trainctl/option_checks.h"
#include "apps/trainctl/worker_program.h"
#include "launcher/printable_text.h"

namespace trainctl::cli {
namespace {

struct OnRunOptions {
  std::string run;
  std::string prompt;
  int64_t max_tokens = 200;
  double temperature = 0.8;
  int64_t seed = 0;
};

absl::StatusOr<ExitCode> Generate(const OnRunOptions& options) {
  TRAINCTL_ASSIGN_OR_RETURN(std::vector<std::string> args, OneProcessArgs("generate", options.run));
  for (const auto& [name, value] :
       std::vector<std::pair<std::string, std::string>>{{"--prompt", options.prompt},
                                                        {"--max-tokens", absl::StrCat(options.max_tokens)},
                                                        {"--temperature", absl::StrCat(options.temperature)},
                                                        {"--seed", absl::StrCat(options.seed)}}) {
    args.push_back(name);
    args.push_back(value);
  }
  return ExecWorker(args);
}

absl::StatusOr<ExitCode> Eval(const OnRunOptions& options) {
  TRAINCTL_ASSIGN_OR_RETURN(const std::vector<std::string> args, OneProcessArgs("eval", options.run));
  // The worker says nothing before all batches are done, which may take a minute.
  const std::string& checkpoint = *std::next(std::find(args.begin(), args.end(), "--checkpoint"));
  std::fprintf(stderr, "evaluating %s\n", launcher::PrintableText(checkpoint).c_str());
  return ExecWorker(args);
}

}  // namespace

void AddGenerate(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("generate", "Let a run's newest checkpoint continue a prompt");
  auto options = std::make_shared<OnRunOptions>();
  verb->add_option("RUN", options->run, "The run folder (default: runs/latest)");
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
  verb->add_option("--seed", options->seed, "Of the sampling")
      ->check(WholeNumber(0))
      ->type_name("N")
      ->capture_default_str();
  SetExample(*verb, "trainctl generate runs/latest --prompt '#include <'");
  verb->callback([&action, options] { action = [options](const Output&) { return Generate(*options); }; });
}

void AddEval(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("eval", "Held-out loss of a run's newest checkpoint, as JSON");
  auto options = std::make_shared<OnRunOptions>();
  verb->add_option("RUN", options->run, "The run folder (default: runs/latest)");
  AddJsonFlag(*verb);
  SetExample(*verb, "trainctl eval runs/latest");
  verb->callback([&action, options] { action = [options](const Output&) { return Eval(*options); }; });
}

}  // namespace trainctl::cli
