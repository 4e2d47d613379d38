// trainctl checkpoint ls|verify: what is in a run's checkpoints, and whether every byte of it is
// what was written.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "apps/trainctl/command.h"
#include "apps/trainctl/worker_program.h"
#include "base/files.h"
#include "base/folder_entries.h"
#include "base/json.h"
#include "base/units.h"
#include "checkpoint/examine.h"
#include "run/model_files.h"

namespace trainctl::cli {
namespace {

using checkpoint::Depth;
using checkpoint::Examined;

void PrintReport(const Json& report) { std::puts(PrintableJson(report).c_str()); }

Json JsonOf(const Examined& examined) {
  Json json = {{"path", examined.info.path}, {"step", examined.info.step}};
  if (examined.info.step < 0) json["step"] = nullptr;
  if (examined.info.bytes > 0) json["bytes"] = examined.info.bytes;
  if (examined.world_size > 0) {
    json["world_size"] = examined.world_size;
    json["num_tensors"] = examined.num_tensors;
  }
  json["state"] = std::string(examined.name());
  if (!examined.usable()) json["message"] = std::string(examined.status.message());
  return json;
}

absl::StatusOr<std::vector<Examined>> CheckpointsOf(const std::string& run, Depth depth) {
  if (!PathExists(run)) {
    return UsageError(absl::StrCat("no such run folder: ", run, "; specify one: trainctl checkpoint ls RUN"));
  }
  return checkpoint::ExamineAll(absl::StrCat(run, "/checkpoints"), depth);
}

absl::StatusOr<ExitCode> List(const std::string& run, const Output& output) {
  TRAINCTL_ASSIGN_OR_RETURN(const std::vector<Examined> list, CheckpointsOf(run, Depth::kManifest));
  Json report = {{"schema", "trainctl.checkpoint-ls.v1"}, {"run", run}, {"checkpoints", Json::array()}};
  if (!output.json && !list.empty()) std::printf("%10s  %10s  %7s  %s\n", "step", "size", "tensors", "state");
  for (const Examined& one : list) {
    report["checkpoints"].push_back(JsonOf(one));
    if (output.json) continue;
    const std::string why = one.usable() ? "" : absl::StrCat(": ", one.status.message());
    std::printf("%10lld  %10s  %7zu  %s\n", static_cast<long long>(one.info.step),
                FormatBytes(one.info.bytes).c_str(), one.num_tensors, absl::StrCat(one.name(), why).c_str());
  }
  if (output.json) PrintReport(report);
  if (!output.json && list.empty()) std::fprintf(stderr, "%s: no checkpoints yet\n", run.c_str());
  return ExitCode::kOk;
}

absl::StatusOr<ExitCode> Verify(const std::string& path, const Output& output) {
  std::vector<Examined> list;
  if (PathExists(absl::StrCat(path, "/manifest.json")) || !PathExists(absl::StrCat(path, "/checkpoints"))) {
    if (!PathExists(path)) return UsageError(absl::StrCat("no such run or checkpoint folder: ", path));
    list.push_back(checkpoint::ExamineFolder(path, Depth::kEveryByte));
  } else {
    TRAINCTL_ASSIGN_OR_RETURN(list, CheckpointsOf(path, Depth::kEveryByte));
    if (list.empty()) return BadDataError(absl::StrCat(path, ": no checkpoint to verify"));
  }
  Json report = {{"schema", "trainctl.checkpoint-verify.v1"}, {"checkpoints", Json::array()}};
  absl::Status first_failure;
  for (const Examined& one : list) {
    report["checkpoints"].push_back(JsonOf(one));
    if (first_failure.ok()) first_failure = one.status;
    if (output.json) continue;
    std::printf("%-10s  %s\n", std::string(one.name()).c_str(), one.info.path.c_str());
    if (!one.usable()) std::fprintf(stderr, "trainctl: %s\n", std::string(one.status.message()).c_str());
  }
  if (output.json) PrintReport(report);
  return ExitCodeFor(first_failure);
}

struct ExportOptions {
  ModelChoice checkpoint;
  std::string out;
  std::string dtype = "fp32";
};

// Files of a model are never mixed with those of another. Asked here, as the worker first loads the model.
absl::Status CheckIsFree(const std::string& folder) {
  std::error_code error;
  if (PathExists(folder) && !std::filesystem::is_directory(folder, error)) {
    return UsageError(absl::StrCat("--out ", folder, " is not a folder; choose another path"));
  }
  for (const std::string& name : FolderEntries(folder)) {
    if (!run::IsModelFile(name) && !absl::EndsWith(name, ".safetensors") &&
        !absl::EndsWith(name, ".safetensors.index.json")) {
      continue;
    }
    return UsageError(absl::StrCat("--out ", folder, " already contains ", name,
                                   "; choose another folder, or empty this one"));
  }
  return absl::OkStatus();
}

absl::StatusOr<ExitCode> Export(const ExportOptions& options, const Output& output) {
  TRAINCTL_RETURN_IF_ERROR(CheckIsFree(options.out));
  TRAINCTL_ASSIGN_OR_RETURN(const ModelSource model, FindCheckpoint(options.checkpoint));
  TRAINCTL_ASSIGN_OR_RETURN(std::vector<std::string> args, OneProcessArgs("export", model));
  args.insert(args.end(),
              {"--out", options.out, "--dtype", options.dtype, "--form", output.json ? "json" : "text"});
  return ExecWorker(args);
}

}  // namespace

void AddCheckpoint(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("checkpoint", "List, verify and export a run's checkpoints");
  verb->require_subcommand(1);
  SetExample(*verb, "trainctl checkpoint verify runs/latest");

  auto run = std::make_shared<std::string>("runs/latest");
  CLI::App* ls = verb->add_subcommand("ls", "List committed checkpoints, oldest first");
  ls->add_option("RUN", *run, "Run folder")->capture_default_str();
  AddJsonFlag(*ls);
  SetExample(*ls, "trainctl checkpoint ls runs/latest --json");
  ls->callback([&action, run] { action = [run](const Output& output) { return List(*run, output); }; });

  CLI::App* verify = verb->add_subcommand("verify", "Verify every byte against its checksum");
  verify->add_option("PATH", *run, "Run folder or checkpoint folder")->capture_default_str();
  AddJsonFlag(*verify);
  SetExample(*verify, "trainctl checkpoint verify runs/latest/checkpoints/step-00000500");
  auto options = std::make_shared<ExportOptions>();
  CLI::App* exporting = verb->add_subcommand("export", "Write a checkpoint as a Hugging Face folder");
  AddCheckpointChoice(*exporting, options->checkpoint);
  exporting->add_option("--out", options->out, "Folder to write to")->required()->type_name("FOLDER");
  exporting->add_option("--dtype", options->dtype, "Data type of the exported weights")
      ->check(CLI::IsMember({"fp32", "bf16"}))
      ->capture_default_str();
  AddJsonFlag(*exporting);
  SetExample(*exporting, "trainctl checkpoint export runs/latest --out model --dtype bf16");
  exporting->callback(
      [&action, options] { action = [options](const Output& output) { return Export(*options, output); }; });
  verify->callback([&action, run] { action = [run](const Output& output) { return Verify(*run, output); }; });
}

}  // namespace trainctl::cli
