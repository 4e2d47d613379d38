#include "trainer/start.h"

#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "base/units.h"
#include "checkpoint/checkpoint_io.h"
#include "checkpoint/odd_weights.h"
#include "checkpoint/phase_hook.h"
#include "comm/c10d_store.h"
#include "comm/host_links.h"
#include "data/kept_documents.h"
#include "telemetry/log_reader.h"
#include "trainer/choose_attention.h"
#include "trainer/numerics.h"
#include "trainer/progress.h"
#include "trainer/restore.h"

namespace trainctl::trainer {
namespace {

absl::string_view FaultPhase(schedule::Op op) {
  switch (op) {
    case schedule::Op::kGather:
    case schedule::Op::kGatherUpdated:
      return "gather";
    case schedule::Op::kReduceGradient:
      return "reduce";
    case schedule::Op::kSend:
      return "send";
    case schedule::Op::kReceive:
      return "receive";
    case schedule::Op::kForward:
      return "forward";
    case schedule::Op::kBackward:
      return "backward";
    case schedule::Op::kOptimizerStep:
      return "optimizer";
    default:
      return "step";
  }
}

class Starter {
 public:
  Starter(const WorkerDeps& deps, const device::Device& device, const PlannedRun& planned,
          FaultInjector& fault, StartedRun& run)
      : deps_(deps),
        device_(device),
        recipe_(*deps.recipe),
        plan_(planned.plan),
        planned_(planned),
        fault_(fault),
        run_(run) {}

  absl::Status Start() {
    TRAINCTL_RETURN_IF_ERROR(CheckPlan());
    fault_.Reach("startup");
    TRAINCTL_RETURN_IF_ERROR(Connect());
    TRAINCTL_RETURN_IF_ERROR(OpenData());
    TRAINCTL_RETURN_IF_ERROR(ChooseAttention());
    MakeState();
    TRAINCTL_RETURN_IF_ERROR(Restore());
    return OpenLog();
  }

 private:
  absl::Status CheckPlan() const {
    if (plan_.layout.mesh.world_size() != deps_.world_size) {
      return UsageError(absl::StrCat("the plan is for ", plan_.layout.mesh.world_size(), " workers, but ",
                                     deps_.world_size, " were started"));
    }
    if (plan_.setting.optimizer->name != recipe_.optimizer.name) {
      return UsageError(absl::StrCat("the plan is for optimizer.name = \"", plan_.setting.optimizer->name,
                                     "\", but the recipe has \"", recipe_.optimizer.name, "\""));
    }
    return schedule::Check(planned_.evaluation, planned_.training.ledger).status();
  }

  absl::Status Connect() {
    deps_.control->Report({.step = -1, .phase = "connect"});
    if (deps_.is_first_rank() && plan_.shares_devices) PrintLine(plan::kSharedDevicesNote);
    TRAINCTL_ASSIGN_OR_RETURN(
        run_.communicator,
        comm::Communicator::Create(device_, comm::MakeC10dStore(*deps_.store), deps_.rank, deps_.world_size,
                                   recipe_.launch.collective_timeout, deps_.address));
    std::vector<int> everyone;
    for (int rank = 0; rank < deps_.world_size; ++rank) everyone.push_back(rank);
    run_.world = run_.communicator->MakeHostGroup(everyone, "world");
    TRAINCTL_ASSIGN_OR_RETURN(
        run_.groups, parallel::Groups::Make(*run_.communicator, plan_.layout.mesh, planned_.training.step));
    double ready = 1;
    TRAINCTL_RETURN_IF_ERROR(run_.world->AllReduceScalars("ready", absl::MakeSpan(&ready, 1)));
    if (deps_.is_first_rank())
      PrintLine(absl::StrCat(FormatNumberOf(deps_.world_size, "worker"), " connected"));
    const int per_node = deps_.world_size / static_cast<int>(recipe_.cluster.nodes);
    TRAINCTL_ASSIGN_OR_RETURN(const std::vector<double> links, comm::MeasureHostLinks(*run_.world, per_node));
    if (!deps_.is_first_rank()) return absl::OkStatus();
    for (const std::string& line : comm::DescribeHostLinks(links, per_node)) PrintLine(line);
    return absl::OkStatus();
  }

  absl::Status OpenData() {
    deps_.control->Report({.step = -1, .phase = "open data"});
    if (deps_.is_first_rank()) {
      TRAINCTL_ASSIGN_OR_RETURN(run_.data_stamps,
                                data::FileStamps::Take(recipe_.data, deps_.data_record_path));
    }
    data::KeptDocuments kept(deps_.documents_path);
    TRAINCTL_ASSIGN_OR_RETURN(run_.data, data::OpenData(recipe_, {.kept = &kept}));
    run_.batches =
        std::make_unique<BatchReader>(recipe_, device_, plan_.layout.mesh, deps_.rank, *run_.data.train);
    return absl::OkStatus();
  }

  // Rank 0 measures, because no rank has more heads.
  absl::Status ChooseAttention() {
    return trainer::ChooseAttention(recipe_, device_, AttentionToChoose(*planned_.training.step.graph),
                                    deps_.attention_path, *run_.world, PrintLine);
  }

  void MakeState() {
    const plan::PlannedStep& training = planned_.training;
    run_.state =
        std::make_unique<parallel::ShardedState>(device_, training.ledger, training.ProgramOf(deps_.rank),
                                                 plan_.setting.types, deps_.rank, *plan_.setting.optimizer);
    run_.executor =
        std::make_unique<parallel::Executor>(recipe_.model.spec, *run_.state, run_.groups, training.options);
    if (fault_.armed()) {
      FaultInjector* const fault = &fault_;
      run_.executor->SetHook(
          [fault](const schedule::Instruction& instruction) { fault->Reach(FaultPhase(instruction.op)); });
      checkpoint::SetPhaseHook([fault](const char* phase) { fault->Reach(phase); });
    }
    if (recipe_.run.check_kernels) run_.executor->CheckOperators();
    if (recipe_.run.graphs) {
      run_.executor->UseGraphs([](const std::string& why_not) {
        std::fprintf(stderr, "cannot capture a step as a graph, so its kernels are launched one by one: %s\n",
                     why_not.c_str());
      });
    }
    run_.log = std::make_unique<TrainingLog>(deps_, device_, plan_);
    run_.saver = std::make_unique<CheckpointSaver>(deps_, planned_, fault_, *run_.state, *run_.world,
                                                   run_.counters, *run_.log);
  }

  absl::Status Restore() {
    deps_.control->Report({.step = -1, .phase = "restore"});
    // Processes of an earlier start may live on where this one cannot see them.
    if (deps_.is_first_rank()) TRAINCTL_RETURN_IF_ERROR(checkpoint::RevokeUnfinished(deps_.checkpoints_path));
    TRAINCTL_ASSIGN_OR_RETURN(
        const Restored found,
        RestoreNewest(deps_.checkpoints_path, *run_.state, *run_.world, *deps_.store,
                      [](const std::string& warning) { PrintLine("warning: " + warning); }));
    if (!found.path.empty()) {
      run_.counters = found.counters;
      if (deps_.is_first_rank()) {
        PrintLine(absl::StrCat("resuming after step ", run_.counters.step, " from ", found.path));
        const std::string changed =
            DescribeChange(found.description_json, DescribeNumerics(plan_, deps_.world_size, device_));
        if (!changed.empty()) PrintLine("note: " + changed);
      }
      run_.saver->ContinueFrom(run_.counters.step);
    } else {
      TRAINCTL_RETURN_IF_ERROR(Begin());
    }
    // In the group that gathers during training too, because each group in use takes memory of a device.
    return run_.state->MaterializeParameters(run_.groups.Of(layout::Axis::kDpShard, schedule::kGatherStream));
  }

  absl::Status Begin() {
    if (deps_.is_first_rank()) TRAINCTL_RETURN_IF_ERROR(deps_.may_begin);
    if (recipe_.model.weights == "from") return LoadWeights();
    if (recipe_.model.weights != "random") {
      return LoadCheckpoint(recipe_.model.weights, *run_.state, /*weights_only=*/true).status();
    }
    run_.state->Initialize(recipe_.run.seed);
    return absl::OkStatus();
  }

  // From the folder that model.from names.
  absl::Status LoadWeights() {
    checkpoint::OddWeights odd;
    TRAINCTL_RETURN_IF_ERROR(LoadModelFolder(recipe_.model.from, *run_.state, &odd));
    const bool holds_first_copy = plan_.layout.mesh.coordinate(deps_.rank, layout::Axis::kDpReplicate) == 0;
    return WarnOfOddWeights(recipe_.model.from, odd, *run_.state, holds_first_copy, *run_.world,
                            [](const std::string& warning) { PrintLine("warning: " + warning); });
  }

  absl::Status OpenLog() {
    if (!deps_.is_first_rank()) return absl::OkStatus();
    const int64_t saved_step = run_.saver->saved_step();
    TRAINCTL_RETURN_IF_ERROR(run_.log->Open(saved_step, run_.counters.unlogged_json));
    if (saved_step <= 0 || recipe_.checkpoint.keep_best.empty()) return absl::OkStatus();
    TRAINCTL_ASSIGN_OR_RETURN(telemetry::Evaluations evaluations,
                              telemetry::ReadEvaluations(deps_.metrics_path));
    run_.saver->SetLosses(std::move(evaluations[recipe_.checkpoint.keep_best]));
    return absl::OkStatus();
  }

  const WorkerDeps& deps_;
  const device::Device& device_;
  const recipe::Recipe& recipe_;
  const plan::Plan& plan_;
  const PlannedRun& planned_;
  FaultInjector& fault_;
  StartedRun& run_;
};

}  // namespace

absl::Status Start(const WorkerDeps& deps, const device::Device& device, const PlannedRun& planned,
                   FaultInjector& fault, StartedRun& run) {
  return Starter(deps, device, planned, fault, run).Start();
}

}  // namespace trainctl::trainer
