// launch.backend = "kubernetes": the manifest that a dry run prints, and what the pods of that job do.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "apps/trainctl/printed_launch.h"
#include "base/status.h"
#include "cluster/kubernetes_job.h"
#include "plan/plan.h"
#include "recipe/recipe.h"

namespace trainctl::cli {

// With a new secret. UsageError: pods could not run this command.
absl::StatusOr<std::string> MakeManifest(const recipe::Recipe& recipe, const plan::Plan& plan,
                                         const PrintedLaunch& launch);

// The pod of the recipe's job that this process is in. EnvironmentError: it is in none; UsageError: the job
// was printed for another recipe.
absl::StatusOr<cluster::KubernetesPod> ThisPod(const recipe::Recipe& recipe);

// Of a pod that does not launch: waits for the launcher and runs this node's workers. kOk: nothing is left to
// train; kStoppedResumable: the job was stopped or has failed, or the launcher was lost; another try may go
// on.
absl::StatusOr<ExitCode> RunPodAgent(const cluster::KubernetesPod& pod, const recipe::Recipe& recipe,
                                     const std::string& run_dir);

}  // namespace trainctl::cli
