#include "apps/trainctl/planned_job.h"

#include <filesystem>
#include <string>

#include "apps/trainctl/machine_access.h"
#include "apps/trainctl/worker_program.h"
#include "base/files.h"
#include "base/status.h"
#include "model/special_tokens.h"
#include "recipe/hosts.h"
#include "recipe/recipe_json.h"
#include "rpc/server.h"
#include "run/model_files.h"
#include "tokenizer/tokenizer.h"

namespace trainctl::cli {

namespace {

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

// The part of "user@name" that is the machine's.
std::string NameOf(const std::string& host) {
  const size_t at = host.find('@');
  return at == std::string::npos ? host : host.substr(at + 1);
}

absl::StatusOr<launcher::RemoteNodes> RemoteNodesOf(const recipe::Recipe& recipe) {
  const recipe::LaunchConfig& launch = recipe.launch;
  TRAINCTL_ASSIGN_OR_RETURN(std::vector<std::string> hosts, recipe::ReadHosts(recipe, MachineAccess()));
  hosts.resize(static_cast<size_t>(recipe.cluster.nodes));  // the others are spare
  launcher::RemoteNodes remote;
  for (const std::string& host : hosts) remote.nodes.push_back({NameOf(host), host});
  remote.ssh_options = launch.ssh.options;
  if (launch.ssh.program) {
    remote.program = *launch.ssh.program;
  } else {
    TRAINCTL_ASSIGN_OR_RETURN(remote.program, OwnProgram());
  }
  remote.interface = launch.interface.value_or("auto");
  remote.pass_env = launch.pass_env;
  remote.coordinator_timeout = launch.coordinator_timeout;
  return remote;
}

absl::Status CheckSpecialTokens(const std::string& folder) {
  for (const char* name : {"/config.json", "/generation_config.json"}) {
    const std::string path = folder + name;
    if (folder.empty() || !PathExists(path)) continue;
    TRAINCTL_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
    TRAINCTL_RETURN_IF_ERROR(model::ReadSpecialTokens(text, path).status());
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status KeepModelFiles(const run::RunFolder& run, const recipe::Recipe& recipe) {
  run::ModelFileSources sources{.folder = ModelFolderOf(recipe)};
  if (recipe.data.tokenizer != "byte") {
    TRAINCTL_ASSIGN_OR_RETURN(sources.tokenizer, tokenizer::Tokenizer::FindFile(recipe.data.tokenizer));
  }
  TRAINCTL_RETURN_IF_ERROR(CheckSpecialTokens(sources.folder));
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
  if (recipe.launch.backend == "ssh") {
    TRAINCTL_ASSIGN_OR_RETURN(job.remote, RemoteNodesOf(recipe));
  }
  job.threads_per_worker = static_cast<int>(plan.threads_per_worker);
  job.env = recipe.launch.env;
  job.max_restarts = recipe.launch.max_restarts;
  job.detect_timeout = recipe.launch.detect_timeout;
  job.stop_timeout = recipe.launch.stop_timeout;
  job.hang_timeout = recipe.launch.hang_timeout;
  job.collective_timeout = recipe.launch.collective_timeout;
  return job;
}

}  // namespace trainctl::cli
