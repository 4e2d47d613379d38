// `trainctl completions SHELL` and `trainctl man`: what a shell and man(1) want to know of the command line.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>

#include "apps/trainctl/command.h"
#include "apps/trainctl/completion.h"
#include "apps/trainctl/man_page.h"

namespace trainctl::cli {

void AddCompletions(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("completions", "Print the completion script for a shell");
  auto shell = std::make_shared<std::string>();
  verb->add_option("SHELL", *shell, "Shell to generate completions for")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  SetExample(*verb, "source <(trainctl completions bash)");
  verb->callback([&action, shell] {
    action = [shell](const Output&) -> absl::StatusOr<ExitCode> {
      std::fputs(CompletionScript(*shell), stdout);
      return ExitCode::kOk;
    };
  });
}

void AddMan(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("man", "Print the manual page");
  SetExample(*verb, "trainctl man | man -l -");
  verb->callback([&action, &app] {
    action = [&app](const Output&) -> absl::StatusOr<ExitCode> {
      std::fputs(ManPage(app, TRAINCTL_VERSION).c_str(), stdout);
      return ExitCode::kOk;
    };
  });
}

}  // namespace trainctl::cli
