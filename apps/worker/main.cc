// trainctl-worker: one rank of a run, or a one-process job on a model (generate, eval, export). Started by
// trainctl; see lib/launcher/worker_contract.h.

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "apps/worker/check_collectives_ranks.h"
#include "apps/worker/inference_model.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/json.h"
#include "base/process_limits.h"
#include "base/standard_fds.h"
#include "base/status.h"
#include "base/units.h"
#include "device/error_text.h"
#include "launcher/printable_text.h"
#include "launcher/worker_contract.h"
#include "launcher/worker_signals.h"
#include "plan/plan.h"
#include "recipe/recipe_json.h"
#include "rpc/worker_client.h"
#include "run/run_folder.h"
#include "trainer/run_worker.h"
#include "verify/verify.h"

namespace trainctl {
namespace {

int Fail(const absl::Status& status) {
  std::fflush(stdout);
  std::fprintf(stderr, "trainctl-worker: %s\n",
               launcher::PrintableText(status.message(), /*keep_newlines=*/true).c_str());
  return static_cast<int>(ExitCodeFor(status));
}

// Handles uncaught exceptions in threads that libraries start, such as gRPC's.
[[noreturn]] void EndWithReason() { std::_Exit(Fail(device::StatusOfUncaught())); }

// "--name value" pairs.
absl::StatusOr<std::map<std::string, std::string>> ParsePairs(const std::vector<std::string>& args) {
  std::map<std::string, std::string> pairs;
  for (size_t i = 0; i + 1 < args.size(); i += 2) pairs[args[i]] = args[i + 1];
  if (args.size() % 2 != 0)
    return UsageError("an option has no value; trainctl-worker is started by trainctl, not by hand");
  return pairs;
}

std::string Get(const std::map<std::string, std::string>& pairs, const std::string& name,
                const std::string& otherwise) {
  const auto it = pairs.find(name);
  return it == pairs.end() ? otherwise : it->second;
}

int64_t GetInt(const std::map<std::string, std::string>& pairs, const std::string& name, int64_t otherwise) {
  int64_t value = otherwise;
  return absl::SimpleAtoi(Get(pairs, name, ""), &value) ? value : otherwise;
}

// Beside this program, in ../lib, or where TRAINCTL_DEVICE_PLUGIN says.
std::string DevicePlugin() {
  if (const char* chosen = std::getenv("TRAINCTL_DEVICE_PLUGIN"); chosen != nullptr) return chosen;
  std::error_code error;
  return launcher::CudaPluginOf(std::filesystem::read_symlink("/proc/self/exe", error).string());
}

absl::StatusOr<int> Train(std::vector<std::string> args) {
  TRAINCTL_ASSIGN_OR_RETURN(const launcher::WorkerFlags flags, launcher::ParseWorkerFlags(args));
  TRAINCTL_ASSIGN_OR_RETURN(const auto options, ParsePairs(args));
  TRAINCTL_ASSIGN_OR_RETURN(run::RunFolder folder, run::RunFolder::Open(flags.run_dir));
  TRAINCTL_ASSIGN_OR_RETURN(const recipe::Recipe recipe, ReadStoredRecipe(folder));
  RealClock clock;
  trainer::WorkerDeps deps;
  deps.recipe = &recipe;
  TRAINCTL_ASSIGN_OR_RETURN(deps.plan_json, ReadFile(folder.plan_path()));
  TRAINCTL_ASSIGN_OR_RETURN(const auto client, rpc::WorkerClient::Connect({.flags = flags}));
  TRAINCTL_ASSIGN_OR_RETURN(const rendezvous::WorldAssignment world, client->Join());
  const run::Grant grant = {world.term, world.generation};
  // Rank 0 alone commits, removes and logs; what the others write is of no use until it does.
  if (world.rank == 0) folder.Hold(grant);
  deps.save_tag = grant.Tag();
  deps.rank = world.rank;
  deps.world_size = world.world_size;
  deps.local_rank = flags.worker_id;
  deps.address = flags.address;
  deps.device_plugin = DevicePlugin();
  deps.store = &client->store();
  deps.control = &client->control();
  deps.clock = &clock;
  deps.check_run_folder = [&folder] { return folder.CheckInPlace(); };
  deps.checkpoints_path = folder.checkpoints_path();
  deps.metrics_path = folder.metrics_path();
  deps.timings_path = folder.timings_path();
  deps.documents_path = folder.documents_path();
  deps.data_record_path = folder.data_path();
  deps.tensorboard_path = folder.tensorboard_path();
  deps.traces_path = folder.traces_path();
  deps.profiles_path = folder.profiles_path();
  deps.attention_path = folder.attention_path();
  TRAINCTL_ASSIGN_OR_RETURN(deps.recipe_text, ReadFile(folder.recipe_path()));
  TRAINCTL_ASSIGN_OR_RETURN(const run::RunState state, folder.ReadState());
  deps.may_begin = folder.CheckMayBegin(state);
  deps.changes = state.changes;
  deps.report_path = folder.path() + "/report.json";
  deps.stop_after = GetInt(options, "--stop-after", -1);
  if (const char* fault = std::getenv("TRAINCTL_FAULT"); fault != nullptr) deps.fault = fault;
  deps.fault_mark_path = folder.path() + "/fault-injected";
  deps.announce_end = [&client](trainer::RunOutcome outcome) {
    const bool finished = outcome == trainer::RunOutcome::kFinished;
    return client->Leave(finished ? rpc::LeaveReason::kFinished : rpc::LeaveReason::kStopped);
  };
  TRAINCTL_ASSIGN_OR_RETURN(const trainer::RunOutcome outcome, trainer::RunWorker(deps));
  return static_cast<int>(outcome == trainer::RunOutcome::kFinished ? ExitCode::kOk
                                                                    : ExitCode::kStoppedResumable);
}

// ---- one-process jobs --------------------------------------------------------------------------

// At once: somebody reads it as it comes.
absl::Status Print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  if (std::fflush(stdout) == 0) return absl::OkStatus();
  return ErrnoError("write", "the output", errno);
}

bool IsJson(const std::map<std::string, std::string>& options) {
  return Get(options, "--form", "text") == "json";
}

// A prompt may be of any bytes.
std::string Dump(const Json& report) { return FormatJson(report) + "\n"; }

void PrintNote(const std::string& note) {
  std::fprintf(stderr, "note: %s\n", launcher::PrintableText(note).c_str());
}

absl::Status Generate(const trainer::InferenceDeps& deps, const std::map<std::string, std::string>& options) {
  trainer::GenerateOptions generate;
  generate.prompt = Get(options, "--prompt", "");
  generate.max_tokens = GetInt(options, "--max-tokens", generate.max_tokens);
  generate.seed = static_cast<uint64_t>(GetInt(options, "--seed", 0));
  if (!absl::SimpleAtod(Get(options, "--temperature", "0.8"), &generate.temperature))
    return UsageError("--temperature is not a number");
  if (!absl::SimpleAtod(Get(options, "--top-p", "1"), &generate.top_p))
    return UsageError("--top-p is not a number");
  const bool as_json = IsJson(options);
  std::string text;
  trainer::GenerateOutput output;
  output.note = PrintNote;
  output.write = Print;
  if (as_json) {
    output.write = [&](const std::string& piece) {
      text += piece;
      return absl::OkStatus();
    };
  }
  TRAINCTL_ASSIGN_OR_RETURN(const trainer::Generated generated, trainer::RunGenerate(deps, generate, output));
  if (!as_json) TRAINCTL_RETURN_IF_ERROR(Print("\n"));  // as every program ends its output
  if (!generated.late_note.empty()) PrintNote(generated.late_note);
  if (!as_json) return absl::OkStatus();
  Json report = {{"schema", "trainctl.generate.v1"}};
  report.update(ParseValidJson(generated.model_json));
  report.update({{"prompt", generate.prompt},
                 {"text", text.substr(generate.prompt.size())},
                 {"tokens", generated.tokens.size()},
                 {"ids", generated.tokens},
                 {"end", generated.ended ? "end_of_text" : "max_tokens"}});
  return Print(Dump(report));
}

absl::Status Export(const trainer::InferenceDeps& deps, const std::map<std::string, std::string>& options) {
  const std::string folder = Get(options, "--out", ""), dtype = Get(options, "--dtype", "fp32");
  TRAINCTL_ASSIGN_OR_RETURN(const trainer::Exported exported,
                            trainer::RunExport(deps, folder, dtype == "bf16"));
  for (const std::string& note : exported.notes) PrintNote(note);
  if (IsJson(options)) {
    Json report = {{"schema", "trainctl.export.v1"},
                   {"checkpoint", deps.checkpoint_path},
                   {"folder", folder},
                   {"dtype", dtype},
                   {"files", Json::array()}};
    for (const trainer::ExportedFile& file : exported.files)
      report["files"].push_back({{"name", file.name}, {"bytes", file.bytes}});
    return Print(Dump(report));
  }
  std::string text =
      absl::StrCat("Wrote ", deps.checkpoint_path, " as a model to ", folder, ", ", dtype, ":\n");
  for (const trainer::ExportedFile& file : exported.files)
    absl::StrAppendFormat(&text, "  %-30s %10s\n", file.name, FormatBytes(file.bytes));
  if (exported.is_bytes)
    absl::StrAppend(&text, "No tokenizer was written, because the model's tokens are bytes\n");
  return Print(text);
}

absl::StatusOr<int> OnModel(const std::string& verb, const std::vector<std::string>& args) {
  TRAINCTL_ASSIGN_OR_RETURN(const auto options, ParsePairs(args));
  TRAINCTL_ASSIGN_OR_RETURN(const InferenceModel model,
                            OpenInferenceModel({.run_dir = Get(options, "--run-dir", ""),
                                                .folder = Get(options, "--model", ""),
                                                .data = Get(options, "--data", ""),
                                                .text_field = Get(options, "--text-field", ""),
                                                .prompt_field = Get(options, "--prompt-field", ""),
                                                .seq_len = GetInt(options, "--seq-len", 0)}));
  for (const std::string& note : model.notes) PrintNote(note);
  const int64_t threads = GetInt(options, "--threads", 1);
  // LibTorch has a few threads of its own.
  TRAINCTL_RETURN_IF_ERROR(
      TryResources({.num_threads = threads + 4, .bytes = int64_t{32} << 20}, "this job"));
  trainer::InferenceDeps deps;
  deps.recipe = &model.recipe;
  deps.checkpoint_path = Get(options, "--checkpoint", "");
  deps.model_files_path = model.files_path;
  deps.threads = static_cast<int>(threads);
  deps.weight_bytes = GetInt(options, "--weight-bytes", 0);
  if (verb == "generate") {
    TRAINCTL_RETURN_IF_ERROR(Generate(deps, options));
    return 0;
  }
  if (verb == "export") {
    TRAINCTL_RETURN_IF_ERROR(Export(deps, options));
    return 0;
  }
  TRAINCTL_ASSIGN_OR_RETURN(const std::string text, trainer::RunEval(deps));
  TRAINCTL_RETURN_IF_ERROR(Print(text));
  return 0;
}

constexpr char kDeviceHelp[] =
    "usage: trainctl-worker check-device [--device N] [--plugin FILE]\n"
    "       trainctl-worker time-kernels [--device N] [--plugin FILE] [--rows N] [--only NAME]\n"
    "       trainctl-worker check-collectives [--ranks N] [--device cpu|cuda] [--plugin FILE] [--max-bytes "
    "N]\n"
    "                                         [--timeout SECONDS]\n\n"
    "check-device runs every operator of the trainer on a device and on the CPU and compares the results.\n"
    "Prints one line of JSON per operator. Exit code: 0 if all agree, 1 if one does not, 4 if a kernel "
    "fails,\n"
    "5 if the device cannot be used.\n"
    "time-kernels times each memory-bound kernel, and a copy for comparison, on rows of 4,096 elements\n"
    "(default: 16,384 rows). NAME selects the kernels whose name contains it.\n"
    "check-collectives starts N processes (default: 2), which are assigned to the devices in turn and may "
    "share\n"
    "them, and compares every collective and message that the trainer uses with the result computed on the\n"
    "host. Prints one line of JSON for each. Exit code: 0 if all agree, 1 if one does not, 4 if one fails "
    "or\n"
    "times out.\n";

// For people who look whether a device computes what it should, and how fast; see --help.
absl::StatusOr<int> LookAtDevice(const std::string& verb, const std::vector<std::string>& args) {
  if (args == std::vector<std::string>{"--help"}) {
    std::fputs(kDeviceHelp, stdout);
    return 0;
  }
  TRAINCTL_ASSIGN_OR_RETURN(const auto options, ParsePairs(args));
  const std::string plugin = Get(options, "--plugin", DevicePlugin());
  if (verb == "check-collectives") return CheckCollectivesOfRanks(options, plugin);
  const int ordinal = static_cast<int>(GetInt(options, "--device", 0));
  if (verb == "check-device") return trainer::CheckDevice(plugin, ordinal);
  if (verb == "measure-device") {  // for `trainctl calibrate`
    TRAINCTL_ASSIGN_OR_RETURN(const std::string json, trainer::MeasureDevice(plugin, ordinal));
    TRAINCTL_RETURN_IF_ERROR(Print(json + "\n"));
    return 0;
  }
  const int64_t rows = GetInt(options, "--rows", 16384);
  if (rows < 1) return UsageError("--rows must be at least 1");
  TRAINCTL_RETURN_IF_ERROR(trainer::TimeOperators(plugin, ordinal, rows, Get(options, "--only", "")));
  return 0;
}

// What a plan's layout computes, held against one process; see `trainctl verify`.
absl::StatusOr<int> VerifyPlan(const std::vector<std::string>& args) {
  TRAINCTL_ASSIGN_OR_RETURN(const auto options, ParsePairs(args));
  const std::string recipe_path = Get(options, "--recipe", ""), plan_path = Get(options, "--plan", "");
  TRAINCTL_ASSIGN_OR_RETURN(const std::string recipe_text, ReadFile(recipe_path));
  TRAINCTL_ASSIGN_OR_RETURN(const recipe::Recipe recipe, recipe::RecipeFromJson(recipe_text, recipe_path));
  TRAINCTL_ASSIGN_OR_RETURN(const std::string plan_text, ReadFile(plan_path));
  TRAINCTL_ASSIGN_OR_RETURN(const plan::Plan plan, plan::PlanFromJson(plan_text, plan_path));
  const char* const fault = std::getenv("TRAINCTL_VERIFY_FAULT");
  TRAINCTL_ASSIGN_OR_RETURN(
      const verify::Report report,
      verify::Verify({recipe.model.spec, plan.layout, plan.setting}, fault == nullptr ? "" : fault));
  const bool as_json = Get(options, "--form", "text") == "json";
  TRAINCTL_RETURN_IF_ERROR(Print(as_json ? verify::ReportToJson(report) : verify::ReportToText(report)));
  return static_cast<int>(report.wrong.empty() ? ExitCode::kOk : ExitCode::kCheckFailed);
}

int Main(int argc, char** argv) {
  std::vector<std::string> args(argv + 1, argv + argc);
  if (args == std::vector<std::string>{"version"}) {
    std::printf("starts, with LibTorch %s\n", trainer::LibTorchVersion());
    return 0;
  }
  const std::string verb = args.empty() ? "" : args[0];
  const std::vector<std::string> rest(args.begin() + (args.empty() ? 0 : 1), args.end());
  if (verb == "check-device" || verb == "time-kernels" || verb == "measure-device" ||
      verb == "check-collectives") {
    const absl::StatusOr<int> code = LookAtDevice(verb, rest);
    return code.ok() ? *code : Fail(code.status());
  }
  if (verb == "verify") {
    const absl::StatusOr<int> code = VerifyPlan(rest);
    return code.ok() ? *code : Fail(code.status());
  }
  if (verb == "generate" || verb == "eval" || verb == "export") {
    const absl::StatusOr<int> code = OnModel(verb, rest);
    return code.ok() ? *code : Fail(code.status());
  }
  launcher::LeaveStoppingToLauncher();
  const absl::StatusOr<int> code = Train(std::move(args));
  return code.ok() ? *code : Fail(code.status());
}

}  // namespace
}  // namespace trainctl

int main(int argc, char** argv) {
  trainctl::OpenStandardFds();
  std::set_terminate(trainctl::EndWithReason);
  try {
    return trainctl::Main(argc, argv);
  } catch (const std::exception& error) {
    return trainctl::Fail(trainctl::device::StatusOf(error));
  }
}
