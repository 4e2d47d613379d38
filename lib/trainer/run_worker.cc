#include "trainer/run_worker.h"

#include <ATen/Parallel.h>
#include <torch/headeronly/version.h>

#include <exception>
#include <optional>
#include <utility>

#include "base/process_limits.h"
#include "base/status.h"
#include "comm/shared_device.h"
#include "device/counting_allocator.h"
#include "device/device.h"
#include "plan/plan.h"
#include "trainer/failure_report.h"
#include "trainer/fault_injector.h"
#include "trainer/planned_run.h"
#include "trainer/start.h"
#include "trainer/training_loop.h"

namespace trainctl::trainer {
namespace {

absl::StatusOr<RunOutcome> StartAndTrain(const WorkerDeps& deps, const device::Device& device,
                                         const PlannedRun& planned, FaultInjector& fault, StartedRun& run,
                                         std::optional<TrainingLoop>& loop) {
  TRAINCTL_RETURN_IF_ERROR(Start(deps, device, planned, fault, run));
  loop.emplace(deps, device, planned, run);
  return loop->Run();
}

// Reports a failure before the run is destroyed, which can wait for a disk.
absl::StatusOr<RunOutcome> TrainAndReport(const WorkerDeps& deps, const device::Device& device,
                                          plan::Plan plan) {
  absl::StatusOr<plan::PlannedStep> step = plan::RebuildStep(plan, deps.recipe->model.spec);
  if (!step.ok()) return ReportIfFailed(deps, step.status());
  const PlannedRun planned(std::move(plan), *std::move(step));
  FaultInjector fault(deps.fault, deps.rank, deps.fault_mark_path);
  StartedRun run;
  std::optional<TrainingLoop> loop;
  try {
    return ReportIfFailed(deps, StartAndTrain(deps, device, planned, fault, run, loop));
  } catch (const std::exception& error) {
    return ReportException(deps, error);
  }
}

}  // namespace

absl::StatusOr<RunOutcome> RunWorker(const WorkerDeps& deps) {
  const ReportsUncaught reports_uncaught(deps);
  try {
    TRAINCTL_ASSIGN_OR_RETURN(plan::Plan plan, plan::PlanFromJson(deps.plan_json, "plan.json"));
    // libgomp ends the process if it cannot start a thread.
    TRAINCTL_RETURN_IF_ERROR(TryResources({.num_threads = plan.threads_per_worker}, "this worker"));
    at::set_num_threads(static_cast<int>(plan.threads_per_worker));
    device::InstallCountingAllocator();
    if (plan.device == "cpu") return TrainAndReport(deps, device::Device::Cpu(), std::move(plan));
    if (plan.shares_devices) comm::SetUpSharedDevice(deps.rank);
    const auto device =
        device::Device::Open(deps.device_plugin, {.ordinal = deps.local_rank,
                                                  .deterministic = deps.recipe->run.deterministic,
                                                  .is_shared = plan.shares_devices});
    if (!device.ok()) return ReportIfFailed(deps, device.status());
    (*device)->UseNewStream();
    return TrainAndReport(deps, **device, std::move(plan));
  } catch (const std::exception& error) {
    return ReportException(deps, error);
  }
}

const char* LibTorchVersion() { return TORCH_VERSION; }

}  // namespace trainctl::trainer
