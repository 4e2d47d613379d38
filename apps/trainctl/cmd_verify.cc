// `trainctl verify`: whether the gradient of a recipe's layout is right. The proof runs in the worker
// program, since this one never loads LibTorch.

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "apps/trainctl/command.h"
#include "apps/trainctl/host_of_run.h"
#include "apps/trainctl/machine_access.h"
#include "apps/trainctl/worker_program.h"
#include "base/files.h"
#include "launcher/printable_text.h"
#include "planner/make_plan.h"
#include "recipe/load.h"
#include "recipe/recipe_json.h"

namespace trainctl::cli {
namespace {

struct VerifyOptions {
  std::string recipe;
  std::vector<std::string> sets;
};

// A file without a name that the worker program inherits. Its path.
absl::StatusOr<std::string> HandOver(const char* name, const std::string& text) {
  const int file = memfd_create(name, 0);
  if (file < 0) return ErrnoError("create", name, errno);
  for (size_t done = 0; done < text.size();) {
    const ssize_t written = write(file, text.data() + done, text.size() - done);
    if (written < 0 && errno != EINTR) return ErrnoError("write", name, errno);
    if (written > 0) done += static_cast<size_t>(written);
  }
  return absl::StrCat("/proc/self/fd/", file);
}

absl::StatusOr<ExitCode> Verify(const VerifyOptions& options, const Output& output) {
  std::vector<std::string> missing;  // data, say: none is needed
  TRAINCTL_ASSIGN_OR_RETURN(
      const recipe::LoadedRecipe loaded,
      recipe::LoadRecipe(options.recipe, options.sets, PlanAccess(&missing), recipe::Purpose::kPlan));
  TRAINCTL_ASSIGN_OR_RETURN(const cluster::Host host, HostOfRun(loaded.recipe));
  TRAINCTL_ASSIGN_OR_RETURN(const plan::Plan plan, planner::MakePlanFor(loaded.recipe, host));
  // The plan says all but the model. A recipe's stored form has data and a length, which nobody reads here.
  recipe::Recipe of_model;
  of_model.model = loaded.recipe.model;
  of_model.data.train.emplace_back().files = {"none"};
  of_model.data.seq_len = 1;
  of_model.train.steps = of_model.train.batch_sequences = 1;
  TRAINCTL_ASSIGN_OR_RETURN(const std::string recipe_path, HandOver("recipe.json", recipe::ToJson(of_model)));
  TRAINCTL_ASSIGN_OR_RETURN(const std::string plan_path, HandOver("plan.json", plan::PlanToJson(plan)));
  if (!output.json) {
    std::printf("%s: %s\n", launcher::PrintableText(options.recipe).c_str(), plan.layout.ToString().c_str());
  }
  return ExecWorker(
      {"verify", "--recipe", recipe_path, "--plan", plan_path, "--form", output.json ? "json" : "text"});
}

}  // namespace

void AddVerify(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand(
      "verify", "Prove that the layout of a recipe gives the gradients of one process, on a small model");
  auto options = std::make_shared<VerifyOptions>();
  verb->add_option("RECIPE", options->recipe, "The recipe (TOML)")->required();
  verb->add_option("--set", options->sets, "Override a field: KEY=VALUE (repeatable)")
      ->allow_extra_args(false)
      ->type_name("KEY=VALUE");
  AddJsonFlag(*verb);
  SetExample(*verb,
             "trainctl verify recipes/toy_1m_cpu.toml --set cluster.devices_per_node=4 --set parallel.tp=2");
  verb->callback(
      [&action, options] { action = [options](const Output& output) { return Verify(*options, output); }; });
}

}  // namespace trainctl::cli
