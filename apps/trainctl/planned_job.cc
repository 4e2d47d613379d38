#include "apps/trainctl/planned_job.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "apps/trainctl/launch_needs.h"
#include "apps/trainctl/node_look.h"
#include "apps/trainctl/remote_nodes.h"
#include "apps/trainctl/worker_program.h"
#include "base/files.h"
#include "base/status.h"
#include "model/special_tokens.h"
#include "recipe/recipe_json.h"
#include "rpc/server.h"
#include "run/model_files.h"
#include "tokenizer/tokenizer.h"

namespace trainctl::cli {

namespace {

constexpr int64_t kTempBytes = int64_t{4} << 20;  // sockets, tokens, and what libraries put there

// Where the files of a recipe's model are: the folder that it names, or what the run kept whose checkpoint it
// begins with. Empty: nowhere.
std::string ModelFolderOf(const recipe::Recipe& recipe) {
  const recipe::ModelConfig& model = recipe.model;
  if (!model.from.empty() || model.weights == "random") return model.from;
  const std::filesystem::path checkpoint = std::filesystem::path(model.weights).lexically_normal();
  const absl::StatusOr<run::RunFolder> other =
      run::RunFolder::Open((checkpoint / ".." / "..").lexically_normal().string());
  return other.ok() && PathExists(other->model_files_path()) ? other->model_files_path() : "";
}

}  // namespace

absl::StatusOr<std::vector<int64_t>> EndIdsOfModel(const recipe::Recipe& recipe) {
  const std::string folder = ModelFolderOf(recipe);
  std::vector<int64_t> ids;
  for (const char* name : {"/generation_config.json", "/config.json"}) {
    const std::string path = folder + name;
    if (folder.empty() || !PathExists(path)) continue;
    TRAINCTL_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
    TRAINCTL_ASSIGN_OR_RETURN(const model::SpecialTokens tokens, model::ReadSpecialTokens(text, path));
    for (const int64_t id : tokens.eos) {
      if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
    }
  }
  return ids;
}

absl::Status KeepModelFiles(const run::RunFolder& run, const recipe::Recipe& recipe) {
  run::ModelFileSources sources{.folder = ModelFolderOf(recipe)};
  if (recipe.data.tokenizer != "byte") {
    TRAINCTL_ASSIGN_OR_RETURN(sources.tokenizer, tokenizer::Tokenizer::FindFile(recipe.data.tokenizer));
  }
  TRAINCTL_RETURN_IF_ERROR(EndIdsOfModel(recipe).status());
  return run::KeepModelFiles(sources, run.model_files_path());
}

absl::Status WriteRunFiles(const run::RunFolder& run, const recipe::Recipe& recipe, const plan::Plan& plan) {
  TRAINCTL_RETURN_IF_ERROR(WriteFileAtomic(run.plan_path(), plan::PlanToJson(plan)));
  return WriteFileAtomic(run.recipe_path(), recipe::ToJson(recipe));
}

absl::StatusOr<launcher::JobOptions> PlannedJob(run::RunFolder& run, const recipe::Recipe& recipe,
                                                const plan::Plan& plan) {
  launcher::JobOptions job;
  job.run = &run;
  job.rendezvous = &rpc::StartServer;
  TRAINCTL_ASSIGN_OR_RETURN(job.worker_program, FindWorkerProgram());
  job.num_workers = static_cast<int>(plan.layout.mesh.world_size() / recipe.cluster.nodes);
  TRAINCTL_ASSIGN_OR_RETURN(job.remote, FindRemoteNodes(recipe));
  job.threads_per_worker = static_cast<int>(plan.threads_per_worker);
  job.env = recipe.launch.env;
  if (recipe.cluster.device == "cpu") {
    job.node_needs.memory_bytes = job.num_workers * plan.predicted.peak_bytes;
  } else if (std::getenv("TRAINCTL_DEVICE_PLUGIN") == nullptr) {  // a plugin that is named is asked itself
    job.node_needs.num_devices = job.num_workers;
  }
  job.node_needs.run_bytes = CheckpointBytes(recipe);
  job.node_needs.temp_bytes = kTempBytes;
  job.node_needs.run_files = HashRunFiles(run.path());
  job.max_restarts = recipe.launch.max_restarts;
  job.detect_timeout = recipe.launch.detect_timeout;
  job.log_limit_bytes = recipe.launch.log_limit_bytes;
  job.stop_timeout = recipe.launch.stop_timeout;
  job.hang_timeout = recipe.launch.hang_timeout;
  job.collective_timeout = recipe.launch.collective_timeout;
  return job;
}

}  // namespace trainctl::cli
