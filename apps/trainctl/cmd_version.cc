#include <CLI/CLI.hpp>
#include <cstdio>

#include "apps/trainctl/command.h"
#include "base/json.h"

namespace trainctl::cli {

void AddVersion(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("version", "Print the version");
  AddJsonFlag(*verb);
  SetExample(*verb, "trainctl version");
  verb->callback([&action] {
    action = [](const Output& output) -> absl::StatusOr<ExitCode> {
      if (output.json) {
        const Json report = {{"schema", "trainctl.version.v1"}, {"version", TRAINCTL_VERSION}};
        std::puts(PrintableJson(report).c_str());
      } else {
        std::puts("trainctl " TRAINCTL_VERSION);
      }
      return ExitCode::kOk;
    };
  });
}

}  // namespace trainctl::cli
