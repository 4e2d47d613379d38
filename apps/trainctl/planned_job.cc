#include "apps/trainctl/planned_job.h"

#include "apps/trainctl/worker_program.h"
#include "base/files.h"
#include "base/status.h"
#include "recipe/recipe_json.h"
#include "rpc/server.h"

namespace trainctl::cli {

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
  job.num_workers = static_cast<int>(plan.layout.mesh.world_size());
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
