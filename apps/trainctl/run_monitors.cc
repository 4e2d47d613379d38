#include "apps/trainctl/run_monitors.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/status.h"
#include "base/subprocess.h"
#include "launcher/printable_text.h"
#include "recipe/schema.h"

namespace trainctl::cli {
namespace {

constexpr absl::Duration kLastWritePatience = absl::Seconds(5);

// The path of launch.on_event's program; empty if none is set.
absl::StatusOr<std::string> FindHook(const recipe::Recipe& recipe) {
  if (recipe.launch.on_event.empty()) return std::string();
  const std::string& program = recipe.launch.on_event[0];
  const std::string path = FindInPath(program);
  std::error_code error;
  if (!path.empty() && std::filesystem::is_regular_file(path, error)) return path;
  const bool is_file = std::filesystem::is_regular_file(program, error);
  return UsageError(absl::StrCat("launch.on_event: ", program,
                                 is_file ? " is not executable; make it so with chmod +x"
                                 : absl::StrContains(program, '/') ? " is not a program; set the path of one"
                                                                   : " is not in PATH; set its full path"));
}

bool IsFile(const std::string& prometheus) {
  return absl::EndsWith(prometheus, recipe::kPrometheusFileSuffix);
}

absl::Status CheckMetricsFile(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) {
    return UsageError(absl::StrCat("metrics.prometheus: there is no folder ", folder,
                                   "; create it, or choose another file"));
  }
  if (std::filesystem::is_directory(path, error)) {
    return UsageError(absl::StrCat("metrics.prometheus: ", path, " is a folder; choose a file"));
  }
  if (::access(folder.c_str(), W_OK | X_OK) == 0) return absl::OkStatus();
  return Annotate(ErrnoError("write to", folder, errno), "metrics.prometheus");
}

// Null if the run does not serve metrics.
absl::StatusOr<std::unique_ptr<monitor::MetricsServer>> OpenServer(const recipe::Recipe& recipe) {
  const std::string& prometheus = recipe.metrics.prometheus;
  if (prometheus.empty() || IsFile(prometheus)) return nullptr;
  return monitor::MetricsServer::Listen(prometheus);
}

void Print(const std::vector<std::string>& messages) {
  for (const std::string& message : messages) {
    std::fprintf(stderr, "trainctl: %s\n", launcher::PrintableText(message).c_str());
  }
}

}  // namespace

std::vector<absl::Status> CheckMonitors(const recipe::Recipe& recipe) {
  std::vector<absl::Status> checks = {FindHook(recipe).status(), OpenServer(recipe).status()};
  const std::string& prometheus = recipe.metrics.prometheus;
  if (IsFile(prometheus)) checks.push_back(CheckMetricsFile(prometheus));
  return checks;
}

absl::StatusOr<RunMonitors> RunMonitors::Open(const recipe::Recipe& recipe) {
  RunMonitors monitors;
  TRAINCTL_ASSIGN_OR_RETURN(std::string hook, FindHook(recipe));
  if (!hook.empty()) {
    monitors.hook_command_ = recipe.launch.on_event;
    monitors.hook_command_[0] = std::move(hook);
  }
  const std::string& prometheus = recipe.metrics.prometheus;
  if (IsFile(prometheus)) TRAINCTL_RETURN_IF_ERROR(CheckMetricsFile(prometheus));
  TRAINCTL_ASSIGN_OR_RETURN(monitors.server_, OpenServer(recipe));
  return monitors;
}

absl::Status RunMonitors::Watch(const run::RunFolder& run, const recipe::Recipe& recipe,
                                const plan::Plan& plan, launcher::JobOptions& job) {
  const std::string name = std::filesystem::path(run.path()).filename().string();
  if (!hook_command_.empty()) {
    hook_ =
        std::make_unique<monitor::EventHook>(monitor::EventHook::Options{.command = hook_command_,
                                                                         .run_name = name,
                                                                         .run_dir = run.path(),
                                                                         .metrics_path = run.metrics_path(),
                                                                         .timings_path = run.timings_path()});
    job.watchers.push_back(hook_.get());
  }
  if (recipe.metrics.prometheus.empty()) return absl::OkStatus();
  monitor::MetricsExport::Options options = {.metrics_path = run.metrics_path(),
                                             .timings_path = run.timings_path()};
  options.run = {.run_name = name,
                 .run_dir = run.path(),
                 .total_steps = recipe.train.steps,
                 .predicted_peak_bytes = plan.predicted.peak_bytes};
  TRAINCTL_ASSIGN_OR_RETURN(options.run.state, run.ReadState());
  job.metrics = server_ != nullptr ? server_->url() : recipe.metrics.prometheus;
  if (server_ == nullptr) options.file = recipe.metrics.prometheus;
  options.server = std::move(server_);
  export_ = std::make_unique<monitor::MetricsExport>(std::move(options));
  job.watchers.push_back(export_.get());
  std::fprintf(stderr, "metrics: %s\n", launcher::PrintableText(job.metrics).c_str());
  return absl::OkStatus();
}

void RunMonitors::Finish(launcher::SignalPipe& signals) {
  if (export_ != nullptr) {
    export_->Finish(kLastWritePatience);
    Print(export_->TakeMessages());
    export_.reset();
  }
  if (hook_ == nullptr) return;
  hook_->Finish([&signals] { return !signals.Take().empty(); });
  Print(hook_->TakeMessages());
  hook_.reset();
}

}  // namespace trainctl::cli
