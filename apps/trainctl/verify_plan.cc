#include "apps/trainctl/verify_plan.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "apps/trainctl/worker_program.h"
#include "base/files.h"
#include "base/run_program.h"
#include "launcher/printable_text.h"
#include "recipe/recipe_json.h"

namespace trainctl::cli {
namespace {

constexpr absl::Duration kPatience = absl::Minutes(10);  // it takes seconds
constexpr size_t kMostBytes = 1 << 20;

// A file without a name, for this process and what it starts or, `after_exec`, becomes. Its path.
absl::StatusOr<std::string> HandOver(const char* name, const std::string& text, bool after_exec) {
  const int file = memfd_create(name, after_exec ? 0 : MFD_CLOEXEC);
  if (file < 0) return ErrnoError("create", name, errno);
  for (size_t done = 0; done < text.size();) {
    const ssize_t written = write(file, text.data() + done, text.size() - done);
    if (written < 0 && errno != EINTR) return ErrnoError("write", name, errno);
    if (written > 0) done += static_cast<size_t>(written);
  }
  return absl::StrCat("/proc/", getpid(), "/fd/", file);
}

absl::StatusOr<std::vector<std::string>> Arguments(const recipe::ModelConfig& model, const plan::Plan& plan,
                                                   const std::string& form, bool after_exec) {
  // The plan says all but the model. A recipe's stored form has data and a length, which nobody reads here.
  recipe::Recipe of_model;
  of_model.model = model;
  of_model.data.train.emplace_back().files = {"none"};
  of_model.data.seq_len = 1;
  of_model.train.steps = of_model.train.batch_sequences = 1;
  TRAINCTL_ASSIGN_OR_RETURN(const std::string recipe_path,
                            HandOver("recipe.json", recipe::ToJson(of_model), after_exec));
  TRAINCTL_ASSIGN_OR_RETURN(const std::string plan_path,
                            HandOver("plan.json", plan::PlanToJson(plan), after_exec));
  return std::vector<std::string>{"verify", "--recipe", recipe_path, "--plan", plan_path, "--form", form};
}

}  // namespace

absl::Status ExecVerify(const recipe::ModelConfig& model, const plan::Plan& plan, const std::string& form) {
  TRAINCTL_ASSIGN_OR_RETURN(const std::vector<std::string> arguments,
                            Arguments(model, plan, form, /*after_exec=*/true));
  return ExecWorker(arguments);
}

absl::StatusOr<ExitCode> VerifyPlan(const recipe::ModelConfig& model, const plan::Plan& plan) {
  TRAINCTL_ASSIGN_OR_RETURN(const std::vector<std::string> arguments,
                            Arguments(model, plan, "text", /*after_exec=*/false));
  TRAINCTL_ASSIGN_OR_RETURN(const std::string worker, FindWorkerProgram());
  std::vector<std::string> command = {worker};
  command.insert(command.end(), arguments.begin(), arguments.end());
  TRAINCTL_ASSIGN_OR_RETURN(const ProgramEnd end, RunProgram(command, kPatience, kMostBytes));
  std::fprintf(stderr, "%s\n", launcher::PrintableText(end.output, /*keep_newlines=*/true).c_str());
  if (end.exit.Success()) return ExitCode::kOk;
  if (!end.exit.signaled && end.exit.code == static_cast<int>(ExitCode::kCheckFailed))
    return ExitCode::kCheckFailed;
  return EnvironmentError(
      absl::StrCat("the layout check ", end.is_late ? "did not finish" : end.exit.Describe(),
                   "; run trainctl verify to see its output, or launch without --verify"));
}

}  // namespace trainctl::cli
