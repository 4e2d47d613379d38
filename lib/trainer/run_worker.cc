// The training loop.

#include "trainer/run_worker.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/core/Tensor.h>
#include <torch/headeronly/version.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <future>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/counter_rng.h"
#include "base/files.h"
#include "base/json.h"
#include "base/units.h"
#include "base/wildcard.h"
#include "checkpoint/checkpoint_io.h"
#include "checkpoint/phase_hook.h"
#include "comm/c10d_store.h"
#include "comm/communicator.h"
#include "comm/host_links.h"
#include "comm/shared_device.h"
#include "data/batch_source.h"
#include "data/file_stamps.h"
#include "data/kept_documents.h"
#include "device/device.h"
#include "device/error_text.h"
#include "optim/lr_schedule.h"
#include "optim/update_limits.h"
#include "parallel/executor.h"
#include "plan/plan.h"
#include "plan/utilization.h"
#include "recipe/derive.h"
#include "telemetry/log_reader.h"
#include "telemetry/run_log.h"
#include "telemetry/step_trace.h"
#include "trainer/background_save.h"
#include "trainer/checkpointing.h"
#include "trainer/choose_attention.h"
#include "trainer/fault_injector.h"
#include "trainer/numerics.h"
#include "trainer/restore.h"
#include "trainer/run_report.h"
#include "trainer/step_profile.h"

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

// A hash of a batch that does not depend on which rank holds which sequence.
std::pair<double, double> HashSequences(const data::Batch& batch, int64_t first_sequence) {
  uint64_t low = 0, high = 0;
  for (int64_t s = 0; s < batch.num_sequences; ++s) {
    const auto* row = reinterpret_cast<const char*>(&batch.tokens[static_cast<size_t>(s * batch.seq_len)]);
    const uint64_t hash = RandomBits(StreamOf({row, static_cast<size_t>(batch.seq_len) * sizeof(int32_t)}), 0,
                                     static_cast<uint64_t>(first_sequence + s));
    low += hash & 0xffffffff;
    high += hash >> 32;
  }
  return {static_cast<double>(low & 0xffffffff), static_cast<double>(high & 0xffffffff)};
}

uint64_t JoinHash(double low, double high) {
  return (static_cast<uint64_t>(high) & 0xffffffff) << 32 | (static_cast<uint64_t>(low) & 0xffffffff);
}

constexpr char kNoTargetsCause[] = "data without completions, or prompts that fill data.seq_len";

absl::Status WithMore(const absl::Status& status, absl::string_view more) {
  return absl::Status(status.code(), absl::StrCat(status.message(), more));
}

std::string LossText(const std::optional<double>& loss) {
  return loss.has_value() ? absl::StrFormat("%.4f", *loss) : "-";
}

class Trainer {
 public:
  Trainer(const WorkerDeps& deps, const device::Device& device, plan::Plan plan, plan::PlannedStep step)
      : d_(deps),
        device_(device),
        recipe_(*deps.recipe),
        spec_(recipe_.model.spec),
        plan_(std::move(plan)),
        planned_(std::move(step)),
        forward_(schedule::BuildLayoutForwards(spec_, plan_.layout, planned_)),
        fault_(deps.fault, deps.rank, deps.fault_mark_path) {}

  absl::StatusOr<RunOutcome> Run() {
    if (plan_.layout.mesh.world_size() != d_.world_size) {
      return UsageError(absl::StrCat("the plan is for ", plan_.layout.mesh.world_size(), " workers, ",
                                     d_.world_size, " were started"));
    }
    if (plan_.setting.optimizer->name != recipe_.optimizer.name) {
      return UsageError(absl::StrCat("the plan is for optimizer.name = \"", plan_.setting.optimizer->name,
                                     "\", the recipe has \"", recipe_.optimizer.name, "\""));
    }
    TRAINCTL_RETURN_IF_ERROR(schedule::Check(forward_, planned_.ledger).status());
    fault_.Reach("startup");
    TRAINCTL_RETURN_IF_ERROR(Connect());
    TRAINCTL_RETURN_IF_ERROR(OpenData());
    TRAINCTL_RETURN_IF_ERROR(ChooseAttention());
    TRAINCTL_RETURN_IF_ERROR(MakeState());
    TRAINCTL_RETURN_IF_ERROR(Restore());
    TRAINCTL_RETURN_IF_ERROR(OpenLogs());
    return Loop();
  }

 private:
  using Losses = std::map<std::string, std::optional<double>>;  // by evaluation set, as StepRecord::eval

  bool first_rank() const { return d_.rank == 0; }

  // Of what comes between steps: the last one stands for it.
  void ReportPhase(const char* phase) {
    d_.control->Report({counters_.step > 0 ? counters_.step : -1, phase, device_.memory().peak});
  }

  // ---- start --------------------------------------------------------------------------------

  absl::Status Connect() {
    d_.control->Report({.step = -1, .phase = "connect"});
    if (first_rank() && plan_.shares_devices) Say(plan::kSharedDevicesNote);
    TRAINCTL_ASSIGN_OR_RETURN(
        communicator_,
        comm::Communicator::Create(device_, comm::MakeC10dStore(*d_.store), d_.rank, d_.world_size,
                                   recipe_.launch.collective_timeout, d_.address));
    std::vector<int> everyone;
    for (int rank = 0; rank < d_.world_size; ++rank) everyone.push_back(rank);
    world_ = communicator_->MakeHostGroup(everyone, "world");
    TRAINCTL_ASSIGN_OR_RETURN(groups_,
                              parallel::Groups::Make(*communicator_, plan_.layout.mesh, planned_.step));
    double ready = 1;
    TRAINCTL_RETURN_IF_ERROR(world_->AllReduceScalars("ready", absl::MakeSpan(&ready, 1)));
    if (first_rank()) Say(absl::StrFormat("%d worker(s) connected", d_.world_size));
    const int per_node = d_.world_size / static_cast<int>(recipe_.cluster.nodes);
    TRAINCTL_ASSIGN_OR_RETURN(const std::vector<double> links, comm::MeasureHostLinks(*world_, per_node));
    if (!first_rank()) return absl::OkStatus();
    for (const std::string& line : comm::DescribeHostLinks(links, per_node)) Say(line);
    return absl::OkStatus();
  }

  absl::Status OpenData() {
    d_.control->Report({.step = -1, .phase = "open data"});
    if (first_rank()) {
      TRAINCTL_ASSIGN_OR_RETURN(auto stamps, data::FileStamps::Take(recipe_.data, d_.data_record_path));
      data_stamps_.emplace(std::move(stamps));
    }
    data::KeptDocuments kept(d_.documents_path);
    TRAINCTL_ASSIGN_OR_RETURN(data_, data::OpenData(recipe_, {.kept = &kept}));
    return absl::OkStatus();
  }

  // Heads of this rank; rank 0 has as many as any.
  absl::Status ChooseAttention() {
    const layout::Mesh& mesh = plan_.layout.mesh;
    const model::MicroBatchShape shape = planned_.options.shape();
    return trainer::ChooseAttention(recipe_, device_,
                                    {.batch = shape.batch,
                                     .seq_len = shape.seq_len,
                                     .heads = spec_.heads / mesh.tp,
                                     .kv_heads = std::max<int64_t>(1, spec_.kv_heads / mesh.tp),
                                     .head_dim = spec_.head_dim},
                                    d_.attention_path, *world_, [](const std::string& text) { Say(text); });
  }

  absl::Status MakeState() {
    state_ = std::make_unique<parallel::ShardedState>(device_, planned_.ledger, planned_.ProgramOf(d_.rank),
                                                      plan_.setting.types, d_.rank, *plan_.setting.optimizer);
    executor_ = std::make_unique<parallel::Executor>(spec_, *state_, groups_, planned_.options);
    if (fault_.armed()) {
      executor_->SetHook(
          [this](const schedule::Instruction& instruction) { fault_.Reach(FaultPhase(instruction.op)); });
      checkpoint::SetPhaseHook([this](const char* phase) { fault_.Reach(phase); });
    }
    if (recipe_.run.check_kernels) executor_->CheckOperators();
    if (recipe_.run.graphs) {
      executor_->UseGraphs([](const std::string& why_not) {
        std::fprintf(stderr, "no graph can be made of a step, so its kernels are launched one by one: %s\n",
                     why_not.c_str());
      });
    }
    if (plan_.setting.checkpoint_copy) {
      saver_ = std::make_unique<BackgroundSaver>(*state_);
    }
    for (const model::Parameter& parameter : planned_.ledger.inventory()) {
      const auto& patterns = recipe_.optimizer.no_decay;
      decay_.push_back(std::none_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
        return MatchesWildcard(pattern, parameter.name);
      }));
    }
    return absl::OkStatus();
  }

  absl::Status Restore() {
    d_.control->Report({.step = -1, .phase = "restore"});
    // Processes of an earlier start may live on where this one cannot see them.
    if (first_rank()) TRAINCTL_RETURN_IF_ERROR(checkpoint::RevokeUnfinished(d_.checkpoints_path));
    TRAINCTL_ASSIGN_OR_RETURN(const Restored found,
                              RestoreNewest(d_.checkpoints_path, *state_, *world_, *d_.store,
                                            [](const std::string& warning) { Say("warning: " + warning); }));
    if (!found.path.empty()) {
      counters_ = found.counters;
      if (first_rank()) {
        Say(absl::StrCat("resuming after step ", counters_.step, " from ", found.path));
        const std::string changed = DescribeChange(found.description_json, Description());
        if (!changed.empty()) Say("note: " + changed);
      }
      saved_step_ = counters_.step;
      data_checked_step_ = counters_.step;
    } else {
      TRAINCTL_RETURN_IF_ERROR(Begin());
    }
    // In the group that gathers during training too: each one that is used takes memory of a device.
    return state_->MaterializeParameters(groups_.Of(layout::Axis::kDpShard, schedule::kGatherStream));
  }

  absl::Status Begin() {
    if (first_rank()) TRAINCTL_RETURN_IF_ERROR(d_.may_begin);
    if (recipe_.model.weights == "from") return LoadModelFolder(recipe_.model.from, *state_);
    if (recipe_.model.weights != "random") {
      return LoadCheckpoint(recipe_.model.weights, *state_, /*weights_only=*/true).status();
    }
    state_->Initialize(recipe_.run.seed);
    return absl::OkStatus();
  }

  absl::Status OpenLogs() {
    if (!first_rank()) return absl::OkStatus();
    TRAINCTL_RETURN_IF_ERROR(CheckRunFolder());
    telemetry::TensorboardOptions events;
    events.folder = d_.tensorboard_path;
    events.metrics_path = d_.metrics_path;
    events.timings_path = d_.timings_path;
    events.recipe_text = d_.recipe_text;
    events.now_s = NowSeconds();
    events.takes_folder = true;
    if (!counters_.unlogged_json.empty() && !telemetry::HasEvaluation(d_.metrics_path, saved_step_)) {
      TRAINCTL_ASSIGN_OR_RETURN(unlogged_,
                                telemetry::ParseStepRecord(counters_.unlogged_json, "the checkpoint"));
      unlogged_->step = saved_step_;
    }
    TRAINCTL_ASSIGN_OR_RETURN(auto log, telemetry::RunLog::Open(events, recipe_.metrics.tensorboard,
                                                                saved_step_, unlogged_.has_value()));
    log_ = std::make_unique<telemetry::RunLog>(std::move(log));
    if (saved_step_ > 0 && !recipe_.checkpoint.keep_best.empty()) {
      TRAINCTL_ASSIGN_OR_RETURN(telemetry::Evaluations evaluations,
                                telemetry::ReadEvaluations(d_.metrics_path));
      losses_ = std::move(evaluations[recipe_.checkpoint.keep_best]);
    }
    // Changes that hold from the next step on are not part of the unlogged one.
    std::vector<telemetry::RunChange> changes;
    for (const telemetry::RunChange& change : d_.changes) {
      if (unlogged_.has_value() && change.after_step >= saved_step_) {
        later_changes_.push_back(change);
      } else {
        changes.push_back(change);
      }
    }
    log_->NoteChanges(changes);
    log_->set_peak_tokens_per_second(plan::PeakTokensPerSecond(plan_));
    return absl::OkStatus();
  }

  // What identifies the numerics of this process: another value may reorder sums.
  std::string Description() const {
    const Json description = {{"layout", plan_.layout.ToString()},
                              {"world_size", d_.world_size},
                              {"threads", plan_.threads_per_worker},
                              {"precision", std::string(DTypeName(plan_.setting.types.compute))},
                              {"numerics", kNumericsVersion},
                              DeviceDescription()};
    return description.dump();
  }

  Json::object_t::value_type DeviceDescription() const {
    if (!device_.is_cpu()) return {"device", device_.description()};
    return {"cpu", std::string(device_.kernels().name) + " " + at::get_cpu_capability()};
  }

  // ---- the loop -----------------------------------------------------------------------------

  absl::StatusOr<RunOutcome> Loop() {
    last_save_time_ = d_.clock->Monotonic();
    TRAINCTL_RETURN_IF_ERROR(EvaluateBeforeFirstStep());
    if (stop_asked_) return Close(RunOutcome::kStoppedOnRequest);  // there is nothing new to save
    bool stop = false;
    while (counters_.step < recipe_.train.steps && !stop) {
      TRAINCTL_RETURN_IF_ERROR(TrainStep());
      ReadNextBatch();
      TRAINCTL_ASSIGN_OR_RETURN(const Agreement agreed, Agree());
      const double step_seconds = absl::ToDoubleSeconds(d_.clock->Monotonic() - step_begin_);
      TRAINCTL_RETURN_IF_ERROR(FinishStep(agreed, step_seconds));
      stop = agreed.stop || stop_asked_;
      if (agreed.lacks_data && !stop) return EndForWantOfData();
    }
    if (saved_step_ != counters_.step && recipe_.checkpoint.at_end)
      TRAINCTL_RETURN_IF_ERROR(Save(SaveKind::kWanted));
    TRAINCTL_RETURN_IF_ERROR(FinishSaving());
    if (first_rank()) {
      TRAINCTL_RETURN_IF_ERROR(log_->Sync());
      SayStepsWithoutUpdate();
    }
    // A start that only completes an evaluation has measured no step.
    if (!executor_->executed_hash().empty()) TRAINCTL_RETURN_IF_ERROR(Report());
    const bool is_done = counters_.step >= recipe_.train.steps && !evaluation_left_;
    return Close(is_done ? RunOutcome::kFinished : RunOutcome::kStoppedOnRequest);
  }

  // Everything is saved; nobody should do a step again because of what goes wrong here.
  absl::StatusOr<RunOutcome> Close(RunOutcome outcome) {
    if (d_.announce_end) TRAINCTL_RETURN_IF_ERROR(d_.announce_end(outcome));
    if (const absl::Status closed = groups_.Close(); !closed.ok())
      Say(absl::StrCat("warning: ", closed.message()));
    return outcome;
  }

  // Evaluates the initial weights, or the step after which a run was stopped or killed before it was
  // evaluated.
  absl::Status EvaluateBeforeFirstStep() {
    const bool asked = d_.control->Poll().kind == DirectiveKind::kStopAfterSave;
    double votes[] = {asked ? 1.0 : 0.0, unlogged_.has_value() ? 1.0 : 0.0};
    TRAINCTL_RETURN_IF_ERROR(world_->AllReduceScalars("stop", votes));
    stop_asked_ = votes[0] > 0;
    const bool completes_log = votes[1] > 0;
    if (stop_asked_) return absl::OkStatus();
    if (completes_log) {
      TRAINCTL_RETURN_IF_ERROR(CompleteLog());
    } else if (counters_.step == 0) {
      TRAINCTL_RETURN_IF_ERROR(RecordInitialLoss());
    }
    counters_.unlogged_json.clear();
    // The step of --stop-after may already be done.
    stop_asked_ = stop_asked_ || (completes_log && StopsAfterThisStep());
    return absl::OkStatus();
  }

  bool StopsAfterThisStep() const {
    return d_.stop_after >= 0 && counters_.step >= d_.stop_after && counters_.step < recipe_.train.steps;
  }

  // Between two batches of an evaluation: whether any rank was asked to stop. Advances the save under way,
  // too.
  absl::StatusOr<bool> IsStopAskedMeanwhile() {
    const Directive directive = d_.control->Poll();
    if (directive.kind == DirectiveKind::kAbort) return WorkerError("told to abort: " + directive.reason);
    const OwnSave save = LookAtSave();
    double votes[] = {directive.kind == DirectiveKind::kStopAfterSave ? 1.0 : 0.0, save.busy ? 1.0 : 0.0,
                      save.failed ? 1.0 : 0.0};
    TRAINCTL_RETURN_IF_ERROR(executor_->CountVotes(votes));
    stop_asked_ = stop_asked_ || votes[0] > 0;
    TRAINCTL_RETURN_IF_ERROR(AdvanceSave(save, votes[1] > 0, votes[2] > 0));
    return stop_asked_;
  }

  absl::StatusOr<data::Batch> LocalBatch(const data::BatchSource& source, int64_t step) const {
    const int64_t per_rank = recipe_.train.batch_sequences / plan_.layout.mesh.data_degree();
    return source.Get(step, {plan_.layout.mesh.data_index(d_.rank) * per_rank, per_rank});
  }

  // Reads this rank's part of the next batch. The ranks agree after that, so a rank that cannot read it does
  // not cost the steps that were done.
  void ReadNextBatch() {
    if (IsLastStep()) return;
    const absl::Duration begin = d_.clock->Monotonic();
    ReportPhase("data");
    batch_ = batch_ahead_.valid() ? batch_ahead_.get() : LocalBatch(*data_.train, counters_.step);
    ReportPhase("step");
    phases_.front().second += absl::ToDoubleSeconds(d_.clock->Monotonic() - begin);
  }

  // While a device computes a step the host reads the next one's batch. On the CPU that would take a core
  // from it.
  void ReadAhead() {
    const int64_t next = counters_.step + 1;
    if (device_.is_cpu() || next >= recipe_.train.steps) return;
    try {
      batch_ahead_ = std::async(std::launch::async, [this, next] { return LocalBatch(*data_.train, next); });
    } catch (const std::system_error&) {
      // No thread can be had: it is read when its turn comes.
    }
  }

  std::vector<nn::TokenView> Views(const data::Batch& batch) const {
    std::vector<nn::TokenView> views;
    const int64_t tokens = planned_.options.shape().tokens();
    for (int m = 0; m < planned_.options.num_micro_batches; ++m) {
      const size_t at = static_cast<size_t>(m * tokens);
      views.push_back({&batch.tokens[at], &batch.targets[at], &batch.positions[at], &batch.document[at],
                       &batch.loss_mask[at]});
    }
    return views;
  }

  // The schedule, and of the steps that the recipe names what ran and when.
  absl::Status RunStep(const data::Batch& batch, const parallel::UpdateOptions& update) {
    const int64_t step = counters_.step + 1;  // as metrics.jsonl counts
    const auto names_it = [step](const std::vector<int64_t>& steps) {
      return std::count(steps.begin(), steps.end(), step) > 0;
    };
    std::optional<StepProfile> profile;
    if (names_it(recipe_.metrics.profile_steps)) profile.emplace(device_);
    if (names_it(recipe_.metrics.trace_steps)) {
      TRAINCTL_RETURN_IF_ERROR(RunTracedStep(batch, update, step));
    } else {
      TRAINCTL_ASSIGN_OR_RETURN(result_, executor_->RunStep(planned_.step, Views(batch), update));
    }
    if (!profile.has_value()) return absl::OkStatus();
    TRAINCTL_RETURN_IF_ERROR(CheckRunFolder());
    return profile->Write(d_.profiles_path, step, d_.rank);
  }

  absl::Status RunTracedStep(const data::Batch& batch, const parallel::UpdateOptions& update, int64_t step) {
    std::vector<telemetry::TracedInstruction> instructions;
    for (const schedule::Instruction& instruction : planned_.ProgramOf(d_.rank).instructions) {
      instructions.push_back({schedule::Describe(instruction), instruction.stream});
    }
    std::vector<std::string> streams;
    for (const schedule::Stream& stream : planned_.ProgramOf(d_.rank).streams) streams.push_back(stream.name);
    telemetry::StepRecorder recorder(std::move(instructions), std::move(streams), d_.rank, d_.world_size);
    executor_->SetSpanHook([&recorder](size_t instruction, int64_t begin_ns, int64_t end_ns) {
      recorder.Add(instruction, begin_ns, end_ns);
    });
    recorder.Begin();
    absl::StatusOr<parallel::StepResult> result = executor_->RunStep(planned_.step, Views(batch), update);
    executor_->SetSpanHook(nullptr);
    TRAINCTL_ASSIGN_OR_RETURN(result_, std::move(result));
    TRAINCTL_RETURN_IF_ERROR(CheckRunFolder());
    return recorder.Write(d_.traces_path, step);
  }

  absl::Status TrainStep() {
    step_begin_ = d_.clock->Monotonic();
    const int64_t step = counters_.step;
    const int64_t peak_bytes = device_.memory().peak;
    d_.control->Report({step + 1, "data", peak_bytes});
    if (!batch_.has_value()) batch_ = LocalBatch(*data_.train, step);
    TRAINCTL_ASSIGN_OR_RETURN(const data::Batch batch, *std::exchange(batch_, std::nullopt));
    ReadAhead();
    const double data_seconds = absl::ToDoubleSeconds(d_.clock->Monotonic() - step_begin_);
    d_.control->Report({step + 1, "step", peak_bytes});

    parallel::UpdateOptions update;
    update.lr = static_cast<float>(LearningRateNow());
    update.beta1 = static_cast<float>(recipe_.optimizer.beta1);
    update.beta2 = static_cast<float>(recipe_.optimizer.beta2);
    update.eps = static_cast<float>(recipe_.optimizer.eps);
    update.momentum = static_cast<float>(recipe_.optimizer.momentum);
    update.weight_decay = static_cast<float>(recipe_.optimizer.weight_decay);
    update.decay = decay_;
    update.clip_norm = recipe_.optimizer.clip_norm;
    update.update_number = counters_.updates + 1;
    update.seed = recipe_.run.seed;
    update.z_loss = static_cast<float>(recipe_.train.z_loss);
    const bool is_first = executor_->executed_hash().empty();
    if (is_first) executor_->HashNextPass();
    TRAINCTL_RETURN_IF_ERROR(RunStep(batch, update));
    if (is_first && executor_->executed_hash() != plan_.step_hash) {
      return InternalError(absl::StrCat("the executor ran step ", executor_->executed_hash(),
                                        ", the plan is for ", plan_.step_hash));
    }
    TRAINCTL_RETURN_IF_ERROR(HandleNonFinite());
    CountUpdate();

    std::tie(hash_low_, hash_high_) =
        HashSequences(batch, plan_.layout.mesh.data_index(d_.rank) * batch.num_sequences);
    ++counters_.step;
    counters_.tokens += recipe_.train.batch_sequences * recipe_.data.seq_len;
    phases_ = {{"data", data_seconds}};
    for (const auto& [phase, seconds] : executor_->phase_seconds()) phases_.emplace_back(phase, seconds);
    const std::map<std::string, double> operators = executor_->operator_seconds();
    operators_.assign(operators.begin(), operators.end());
    lr_ = update.lr;
    return absl::OkStatus();
  }

  double LearningRateNow() const {
    return optim::LearningRate(recipe::LearningRates(recipe_), counters_.step);
  }

  // Loss and norm are the same on every rank, so all of them decide alike.
  absl::Status HandleNonFinite() {
    if (result_.finite) return absl::OkStatus();
    const std::string what =
        absl::StrFormat("step %d: loss %g, gradient norm %g are not finite (learning rate %.3g)",
                        counters_.step + 1, result_.loss, result_.grad_norm, LearningRateNow());
    if (recipe_.train.on_nonfinite == "skip") {
      if (first_rank()) Say("warning: " + what + "; the update is skipped");
      return absl::OkStatus();
    }
    const std::string checkpoint = LastCheckpoint();
    return CheckFailedError(absl::StrCat(what, "; ", checkpoint));
  }

  // Collective: finishes the save under way, whose state is of before. Its steps should not be lost too.
  std::string LastCheckpoint() {
    const absl::Status saved = FinishSaving();
    if (!saved.ok()) return absl::StrCat("the save under way failed: ", saved.message());
    if (saved_step_ < 0) return "there is no checkpoint yet";
    // Its weights were examined when it was saved or loaded.
    return absl::StrCat("the last checkpoint, of step ", saved_step_, ", is good");
  }

  // Counts the computed step. The result is the same on every rank.
  void CountUpdate() {
    const bool has_targets = result_.loss_tokens > 0;
    counters_.updates += result_.finite && has_targets ? 1 : 0;
    counters_.skipped += result_.finite ? 0 : 1;
    if (!result_.finite) {
      ++skipped_in_a_row_;
    } else if (has_targets) {
      skipped_in_a_row_ = 0;
    }
    steps_without_targets_ = has_targets ? 0 : steps_without_targets_ + 1;
    if (has_targets || !first_rank()) return;
    Say(absl::StrCat("warning: step ", counters_.step + 1,
                     ": no target of this step's batch counts in the loss: ", kNoTargetsCause,
                     "; no update is made"));
  }

  // Ends a run that makes no updates any more. The step is logged first, but not saved.
  absl::Status CheckUpdates(bool is_logged, const telemetry::StepRecord& record) {
    const bool is_dead = skipped_in_a_row_ >= optim::kMostSkippedInARow;
    if (!is_dead && steps_without_targets_ < optim::kMostStepsWithoutTargets) return absl::OkStatus();
    if (!is_logged) TRAINCTL_RETURN_IF_ERROR(LogStep(record, /*always=*/true));
    const int64_t step = counters_.step;
    const std::string checkpoint = LastCheckpoint();
    if (!is_dead) {
      return BadDataError(
          absl::StrFormat("no target counted in the loss in %d steps in a row (%d to %d): %s. `trainctl data "
                          "batch RECIPE --step "
                          "%d` shows a batch with its loss mask. Give the examples completions, or launch a "
                          "run with a larger "
                          "data.seq_len; %s",
                          steps_without_targets_, step - steps_without_targets_ + 1, step, kNoTargetsCause,
                          step, checkpoint));
    }
    const bool holds_these = saved_step_ >= step - skipped_in_a_row_;
    return CheckFailedError(absl::StrFormat(
        "step %d: loss %g, gradient norm %g are not finite (learning rate %.3g); %d updates in a row were "
        "skipped (%d of %d in all), so the weights are probably no longer usable; %s",
        step, result_.loss, result_.grad_norm, lr_, skipped_in_a_row_, counters_.skipped, step,
        holds_these ? absl::StrCat("the last checkpoint, of step ", saved_step_, ", has the same weights")
                    : checkpoint));
  }

  // Warns at the end of a run. Rank 0 only.
  void SayStepsWithoutUpdate() const {
    const int64_t without_targets = counters_.step - counters_.updates - counters_.skipped;
    if (counters_.skipped > 0) {
      Say(absl::StrFormat("warning: %d of %d updates were skipped because their gradients were not finite",
                          counters_.skipped, counters_.step));
    }
    if (without_targets > 0) {
      Say(absl::StrFormat(
          "warning: %d of %d steps made no update because no target of their batch counted in "
          "the loss",
          without_targets, counters_.step));
    }
  }

  // One that is due may be skipped; one that is wanted, by a person, a stop or the end, is made in any case.
  enum class SaveKind : uint8_t { kNone, kDue, kWanted };

  // What all ranks must decide alike: stop, save, and how far the save under way is. Directives, clocks and
  // disks differ between ranks, so they are summed; the batch hash rides along.
  struct Agreement {
    bool stop = false;
    SaveKind save = SaveKind::kNone;
    uint64_t batch_hash = 0;
    bool lacks_data = false;  // a rank could not read the next batch
  };
  absl::StatusOr<Agreement> Agree() {
    const Directive directive = d_.control->Poll();
    if (directive.kind == DirectiveKind::kAbort) return WorkerError("told to abort: " + directive.reason);
    const recipe::CheckpointConfig& c = recipe_.checkpoint;
    const bool time_is_up = c.every.has_value() && d_.clock->Monotonic() - last_save_time_ >= *c.every;
    const OwnSave own_save = LookAtSave();
    const auto vote = [](bool yes) { return yes ? 1.0 : 0.0; };
    // Every stage of a pipeline has the same sequences, and so has every rank of tensor parallelism.
    const layout::Mesh& mesh = plan_.layout.mesh;
    const bool counts_batch =
        mesh.coordinate(d_.rank, layout::Axis::kPp) == 0 && mesh.coordinate(d_.rank, layout::Axis::kTp) == 0;
    double votes[] = {vote(directive.kind == DirectiveKind::kStopAfterSave),
                      vote(first_rank() && time_is_up),
                      vote(own_save.busy),
                      vote(own_save.failed),
                      vote(first_rank() && directive.saves_asked > saves_made_),
                      vote(batch_.has_value() && !batch_->ok()),
                      counts_batch ? hash_low_ : 0,
                      counts_batch ? hash_high_ : 0};
    TRAINCTL_RETURN_IF_ERROR(executor_->CountVotes(votes));
    stop_asked_ = votes[0] > 0;
    const bool stop = stop_asked_ || StopsAfterThisStep();
    const bool due = votes[1] > 0 || (c.every_steps.has_value() && counters_.step % *c.every_steps == 0);
    saves_made_ = directive.saves_asked;
    TRAINCTL_RETURN_IF_ERROR(AdvanceSave(own_save, votes[2] > 0, votes[3] > 0));
    const bool lacks_data = votes[5] > 0;
    const bool wanted = votes[4] > 0 || lacks_data;
    const SaveKind save = wanted ? SaveKind::kWanted : due ? SaveKind::kDue : SaveKind::kNone;
    return Agreement{stop, save, JoinHash(votes[6], votes[7]), lacks_data};
  }

  // The steps done are saved.
  absl::Status EndForWantOfData() {
    const std::string checkpoint = LastCheckpoint();
    if (batch_->ok()) return WorkerError("another rank could not read the data of the next step");
    return WithMore(batch_->status(), absl::StrCat("; ", checkpoint));
  }

  // This rank's part of the save under way.
  struct OwnSave {
    bool saving = false;  // the same on all ranks
    bool busy = false;
    bool failed = false;
  };
  OwnSave LookAtSave() {
    OwnSave own;
    own.saving = saver_ != nullptr && !saver_->idle();
    own.busy = own.saving && !saver_->IsDone();
    own.failed = own.saving && !own.busy && !saver_->result().ok();
    return own;
  }

  // Begins the next phase of the save under way if no rank is busy. All ranks call this with the same two
  // flags.
  absl::Status AdvanceSave(const OwnSave& own, bool any_busy, bool any_failed) {
    if (!own.saving || any_busy) return absl::OkStatus();
    if (!any_failed) {
      if (saver_->Advance()) SaySaved(saver_->step(), saver_->written());
      return absl::OkStatus();
    }
    saved_step_ = saved_before_;
    TRAINCTL_RETURN_IF_ERROR(MissSave(
        saving_, saver_->step(), own.failed ? saver_->result() : WorkerError("another rank failed to save")));
    saver_->Abandon();
    return absl::OkStatus();
  }

  double NowSeconds() const { return absl::ToDoubleSeconds(d_.clock->Now() - absl::UnixEpoch()); }

  bool IsLastStep() const { return counters_.step == recipe_.train.steps; }
  bool IsEvaluationDue() const {
    return IsLastStep() || (recipe_.train.eval_every > 0 && counters_.step % recipe_.train.eval_every == 0);
  }

  // Logs, saves and evaluates a step. The save comes before the evaluation, so that a run that is killed
  // while it evaluates has lost nothing. The log gets one line per step, which has the evaluation: until then
  // the checkpoint keeps the record, and a resumed run evaluates and completes the log.
  absl::Status FinishStep(const Agreement& agreed, double step_seconds) {
    telemetry::StepRecord record = RecordOfStep(agreed.batch_hash);
    TRAINCTL_RETURN_IF_ERROR(LogTiming(step_seconds));
    const bool evaluates = IsEvaluationDue() && !data_.eval.empty();
    const bool logs_now = !evaluates || stop_asked_;
    if (logs_now) TRAINCTL_RETURN_IF_ERROR(LogStep(record, evaluates));
    TRAINCTL_RETURN_IF_ERROR(CheckUpdates(logs_now, record));
    if (evaluates) counters_.unlogged_json = absl::StrCat("{", telemetry::FormatFields(record), "}");
    SaveKind save = agreed.save;
    if (agreed.stop || (IsLastStep() && recipe_.checkpoint.at_end)) save = SaveKind::kWanted;
    const absl::Status saved = save != SaveKind::kNone ? Save(save) : absl::OkStatus();
    if (!saved.ok()) {
      if (!logs_now) TRAINCTL_RETURN_IF_ERROR(LogStep(record, /*always=*/true));
      return saved;
    }
    if (!evaluates) return IsLastStep() ? CheckData() : absl::OkStatus();
    if (!stop_asked_) {
      ReportPhase("evaluate");
      TRAINCTL_ASSIGN_OR_RETURN(const std::optional<Losses> losses, Evaluate());
      if (losses.has_value()) {
        record.eval = *losses;
        counters_.unlogged_json.clear();
        NoteLoss(*losses);
      }
      TRAINCTL_RETURN_IF_ERROR(LogStep(record, evaluates));
      if (stop_asked_) {
        TRAINCTL_RETURN_IF_ERROR(FinishSaving());
        if (saved_step_ != counters_.step) TRAINCTL_RETURN_IF_ERROR(Save(SaveKind::kWanted));
      }
    }
    evaluation_left_ = !counters_.unlogged_json.empty();
    if (evaluation_left_ && first_rank()) {
      Say(absl::StrCat("stopped before the evaluation after step ", counters_.step,
                       " was done; a resumed run begins with it"));
    }
    return absl::OkStatus();
  }

  // Remembers the loss that checkpoint.keep_best compares.
  void NoteLoss(const Losses& losses) {
    const auto loss = losses.find(recipe_.checkpoint.keep_best);
    if (loss != losses.end() && loss->second.has_value()) losses_[counters_.step] = *loss->second;
  }

  telemetry::StepRecord RecordOfStep(uint64_t batch_hash) const {
    telemetry::StepRecord record;
    record.step = counters_.step;
    record.loss = result_.loss_tokens > 0 ? std::optional<double>(result_.loss) : std::nullopt;
    record.grad_norm = result_.grad_norm;
    record.lr = lr_;
    record.tokens = counters_.tokens;
    record.batch_hash = batch_hash;
    record.skipped = !result_.finite;
    return record;
  }

  // Logs the time of the step, which is known before the step is evaluated.
  absl::Status LogTiming(double step_seconds) {
    times_.Add(step_seconds, phases_, operators_);
    tokens_per_second_ =
        static_cast<double>(recipe_.train.batch_sequences * recipe_.data.seq_len) / step_seconds;
    if (!first_rank()) return absl::OkStatus();
    TRAINCTL_RETURN_IF_ERROR(CheckRunFolder());
    const device::MemoryUse memory = device_.memory();
    TRAINCTL_RETURN_IF_ERROR(
        log_->Append(telemetry::TimingRecord{counters_.step,
                                             step_seconds,
                                             tokens_per_second_,
                                             phases_,
                                             operators_,
                                             {{"tensor_peak", memory.peak}, {"tensor_live", memory.live}},
                                             NowSeconds()}));
    return absl::OkStatus();
  }

  // Appends the step's line to metrics.jsonl and prints it, unless it is one of those to be thinned out.
  absl::Status LogStep(const telemetry::StepRecord& record, bool always) {
    if (!first_rank()) return absl::OkStatus();
    TRAINCTL_RETURN_IF_ERROR(CheckRunFolder());
    always = always || IsLastStep();
    const bool is_notable = record.skipped || !record.loss.has_value();
    if (always || is_notable || counters_.step % recipe_.metrics.every_steps == 0) {
      TRAINCTL_RETURN_IF_ERROR(log_->Append(record, NowSeconds()));
    }
    WarnOfLogs();
    const absl::Duration now = d_.clock->Monotonic();
    if (!always && now - last_line_ < absl::Seconds(1)) return absl::OkStatus();
    last_line_ = now;
    const double peak = plan::PeakTokensPerSecond(plan_);
    const std::string mfu = peak > 0 ? absl::StrFormat(" mfu %.1f%%", 100 * tokens_per_second_ / peak) : "";
    Say(absl::StrFormat("step %d/%d loss %s grad_norm %.3f lr %.3g %.0f tokens/s%s mem %s%s", record.step,
                        recipe_.train.steps, LossText(record.loss), record.grad_norm, record.lr,
                        tokens_per_second_, mfu, FormatBytes(device_.memory().peak),
                        LossesText(record.eval)));
    return absl::OkStatus();
  }

  static std::string LossesText(const Losses& losses) {
    std::string text;
    for (const auto& [name, loss] : losses) absl::StrAppend(&text, " ", name, " ", LossText(loss));
    return text;
  }

  // Reports when the logs cannot be written, and when they can be again.
  void WarnOfLogs() {
    const bool had_trouble = std::exchange(logs_have_trouble_, !log_->trouble().ok());
    if (logs_have_trouble_ == had_trouble) return;
    if (had_trouble) {
      Say("the logs are being written again; no lines were lost");
    } else {
      Say(absl::StrCat("warning: ", log_->trouble().message(),
                       "; training continues, and unwritten lines are kept and written later"));
    }
  }

  // ---- evaluation ---------------------------------------------------------------------------

  // Loss per set, over all its tokens: the same whatever the layout. Empty if any rank is asked to stop
  // before it is done; the ranks agree on that before each batch.
  absl::StatusOr<std::optional<Losses>> Evaluate() {
    TRAINCTL_RETURN_IF_ERROR(CheckData());
    Losses losses;
    for (const data::EvalSet& set : data_.eval) {
      double sums[2] = {0, 0};
      for (int64_t i = 0; i < set.num_batches; ++i) {
        TRAINCTL_ASSIGN_OR_RETURN(const bool stop, IsStopAskedMeanwhile());
        if (stop) return std::optional<Losses>();
        TRAINCTL_ASSIGN_OR_RETURN(const data::Batch batch, LocalBatch(*set.source, i));
        TRAINCTL_ASSIGN_OR_RETURN(const parallel::EvalSums part,
                                  executor_->RunForward(forward_, Views(batch)));
        sums[0] += part.loss;
        sums[1] += static_cast<double>(part.loss_tokens);
      }
      TRAINCTL_RETURN_IF_ERROR(executor_->SumOverRanks(layout::kEvalReduction, sums));
      losses[set.name] = sums[1] > 0 ? std::optional<double>(sums[0] / sums[1]) : std::nullopt;
      if (sums[1] > 0 || !first_rank() || !sets_without_targets_.insert(set.name).second) continue;
      Say(absl::StrCat("warning: no target of the evaluation set '", set.name,
                       "' counts in the loss: ", kNoTargetsCause, "; it has no loss"));
    }
    // The last batch may have taken long.
    TRAINCTL_RETURN_IF_ERROR(IsStopAskedMeanwhile().status());
    return losses;
  }

  absl::Status RecordInitialLoss() {
    if (data_.eval.empty()) return absl::OkStatus();
    ReportPhase("evaluate");
    TRAINCTL_ASSIGN_OR_RETURN(const std::optional<Losses> losses, Evaluate());
    if (!losses.has_value() || !first_rank()) return absl::OkStatus();
    telemetry::StepRecord record;
    record.eval = *losses;
    TRAINCTL_RETURN_IF_ERROR(log_->Append(record, NowSeconds()));
    Say("before training:" + LossesText(*losses));
    return absl::OkStatus();
  }

  // Evaluates the step of the checkpoint and logs it, which an earlier start of the run had no time for.
  absl::Status CompleteLog() {
    d_.control->Report({.step = -1, .phase = "evaluate"});
    TRAINCTL_ASSIGN_OR_RETURN(const std::optional<Losses> losses, Evaluate());
    if (!first_rank()) return absl::OkStatus();
    if (losses.has_value()) {
      unlogged_->eval = *losses;
      NoteLoss(*losses);
    }
    TRAINCTL_RETURN_IF_ERROR(log_->Append(*unlogged_, NowSeconds()));
    log_->NoteChanges(later_changes_);
    if (losses.has_value()) Say(absl::StrCat("after step ", unlogged_->step, ":", LossesText(*losses)));
    return absl::OkStatus();
  }

  // ---- saving and the end -------------------------------------------------------------------

  absl::Status Save(SaveKind kind) {
    if (saver_ != nullptr && !saver_->idle() && kind == SaveKind::kDue &&
        recipe_.checkpoint.when_busy == "skip") {
      if (first_rank()) {
        Say(absl::StrCat("no checkpoint after step ", counters_.step, ": that of step ", saver_->step(),
                         " is still being written"));
      }
      last_save_time_ = d_.clock->Monotonic();
      return absl::OkStatus();
    }
    TRAINCTL_RETURN_IF_ERROR(CheckData());
    return WriteCheckpoint(kind);
  }

  absl::Status WriteCheckpoint(SaveKind kind) {
    ReportPhase("save");
    fault_.Reach("save");
    SaveOptions options{.root = d_.checkpoints_path,
                        .tag = d_.save_tag,
                        .retention = {.keep = keeps_all_ ? INT64_MAX : recipe_.checkpoint.keep,
                                      .keep_every_steps = recipe_.checkpoint.keep_every_steps,
                                      .losses = losses_},
                        .description_json = Description()};
    options.sync_logs = [this] { return log_->Sync(); };
    options.check_folder = d_.check_run_folder;
    options.warn = [](const std::string& what) { Say("warning: " + what); };
    TRAINCTL_RETURN_IF_ERROR(FinishSaving());
    const absl::Duration begin = d_.clock->Monotonic();
    Written written;
    if (saver_ != nullptr) {
      saver_->Start(options, counters_);
    } else {
      absl::StatusOr<Written> saved = SaveCheckpoint(options, *state_, counters_, *world_);
      if (!saved.ok()) return MissSave(kind, counters_.step, saved.status());
      written = *std::move(saved);
    }
    saving_ = kind;
    saved_before_ = std::exchange(saved_step_, counters_.step);
    last_save_time_ = d_.clock->Monotonic();
    save_wait_ = last_save_time_ - begin;
    if (saver_ == nullptr) SaySaved(saved_step_, written);
    return absl::OkStatus();
  }

  // Waits until what is being written is committed.
  absl::Status FinishSaving() {
    if (saver_ == nullptr || saver_->idle()) return absl::OkStatus();
    const absl::Duration begin = d_.clock->Monotonic();
    if (const absl::Status drained = saver_->Drain(*world_); !drained.ok()) {
      saved_step_ = saved_before_;
      TRAINCTL_RETURN_IF_ERROR(MissSave(saving_, saver_->step(), drained));
      saver_->Abandon();
      return absl::OkStatus();
    }
    save_wait_ += d_.clock->Monotonic() - begin;
    SaySaved(saver_->step(), saver_->written());
    return absl::OkStatus();
  }

  // Handles a failed save. A periodic save may fail, for example because the disk is full; the next one is
  // attempted when it is due. Returns the failure if it ends the run. All ranks call this with the same kind.
  absl::Status MissSave(SaveKind kind, int64_t step, const absl::Status& failure) {
    const ExitCode code = ExitCodeFor(failure);
    const bool is_of_disk = code == ExitCode::kEnvironment || code == ExitCode::kWorkerFailed;
    if (kind != SaveKind::kDue || !is_of_disk) return failure;
    last_save_time_ = d_.clock->Monotonic();
    if (code == ExitCode::kEnvironment) {
      Say(absl::StrCat("warning: no checkpoint after step ", step, ": ", failure.message(),
                       "; training continues, and the next save is attempted when it is due"));
    }
    // The unfinished checkpoint occupies space that the next save needs.
    if (!first_rank()) return absl::OkStatus();
    TRAINCTL_RETURN_IF_ERROR(CheckRunFolder());
    if (const absl::Status removed = checkpoint::RevokeUnfinished(d_.checkpoints_path); !removed.ok())
      Say(absl::StrCat("warning: ", removed.message()));
    return absl::OkStatus();
  }

  void SaySaved(int64_t step, const Written& written) const {
    if (!first_rank()) return;
    Say(absl::StrFormat(
        "checkpoint saved after step %d (training waited %.3f s; this rank wrote %s in %.3f s)", step,
        absl::ToDoubleSeconds(save_wait_), FormatBytes(written.bytes), absl::ToDoubleSeconds(written.time)));
  }

  // Predicted against measured.
  absl::Status Report() {
    ReportPhase("report");
    constexpr size_t kScratch = schedule::kNumCategories, kNumbers = kScratch + 1;
    std::vector<double> measured(static_cast<size_t>(d_.world_size) * kNumbers);
    const absl::Span<double> mine = absl::MakeSpan(measured).subspan(static_cast<size_t>(d_.rank) * kNumbers);
    const device::TaggedBytes own = device_.memory().at_peak;
    for (size_t c = 0; c < schedule::kNumCategories; ++c) {
      const auto category = static_cast<schedule::Category>(c);
      mine[c] = static_cast<double>(own[static_cast<size_t>(parallel::MemoryTag(category))]);
      if (category == schedule::Category::kActivations) mine[c] += static_cast<double>(own[0]);
    }
    mine[kScratch] = static_cast<double>(own[device::kScratchTag]);
    TRAINCTL_RETURN_IF_ERROR(world_->AllReduceScalars("report", absl::MakeSpan(measured)));
    if (!first_rank()) return absl::OkStatus();
    TRAINCTL_RETURN_IF_ERROR(CheckRunFolder());
    std::vector<MeasuredMemory> by_rank(static_cast<size_t>(d_.world_size));
    for (size_t rank = 0; rank < by_rank.size(); ++rank) {
      const double* const numbers = &measured[rank * kNumbers];
      MeasuredMemory& of_rank = by_rank[rank];
      for (size_t c = 0; c < of_rank.at_peak.size(); ++c)
        of_rank.at_peak[c] = static_cast<int64_t>(numbers[c]);
      of_rank.library_scratch_bytes = static_cast<int64_t>(numbers[kScratch]);
    }
    TRAINCTL_ASSIGN_OR_RETURN(
        const std::vector<std::string> lines,
        WriteReport(d_.report_path, plan_, spec_, planned_, executor_->executed_hash(), by_rank, times_));
    for (const std::string& line : lines) Say(line);
    return absl::OkStatus();
  }

  // Ends the run if a data file has changed. The steps done are saved first: whoever restores the file should
  // not lose them, and the message says which steps may have read the changed bytes. All ranks call this.
  absl::Status CheckData() {
    const absl::Status changed = FindChangedData();
    double votes = changed.ok() ? 0 : 1;
    TRAINCTL_RETURN_IF_ERROR(world_->AllReduceScalars("data", absl::MakeSpan(&votes, 1)));
    if (votes == 0) {
      data_checked_step_ = counters_.step;
      return absl::OkStatus();
    }
    if (counters_.step > std::max<int64_t>(saved_step_, 0)) {
      keeps_all_ = true;  // also the last checkpoint that cannot have read them
      TRAINCTL_RETURN_IF_ERROR(WriteCheckpoint(SaveKind::kWanted));
    }
    TRAINCTL_RETURN_IF_ERROR(FinishSaving());
    if (changed.ok()) return WorkerError("rank 0 found that a data file has changed");
    if (saved_step_ <= data_checked_step_) return changed;
    return WithMore(
        changed,
        absl::StrCat("; step ", saved_step_, " is saved, and the steps from ", data_checked_step_ + 1,
                     " on may have read the changed bytes; to repeat them, move the checkpoints after step ",
                     data_checked_step_, " away before the resume"));
  }

  // Only rank 0 checks: all ranks read the same files, and the shared file system gets one request, not many.
  absl::Status FindChangedData() {
    if (!data_stamps_.has_value()) return absl::OkStatus();
    TRAINCTL_ASSIGN_OR_RETURN(const std::vector<std::string> touched, data_stamps_->CheckUnchanged());
    for (const std::string& file : touched) {
      Say(absl::StrCat("note: ", file,
                       " was touched or replaced; its bytes are now those that the run began with"));
    }
    return absl::OkStatus();
  }

  absl::Status CheckRunFolder() const {
    return d_.check_run_folder ? d_.check_run_folder() : absl::OkStatus();
  }

  static void Say(const std::string& line) {
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
  }

  const WorkerDeps& d_;
  const device::Device& device_;
  const recipe::Recipe& recipe_;
  const model::ModelSpec& spec_;
  const plan::Plan plan_;
  const plan::PlannedStep planned_;
  const schedule::Step forward_;
  FaultInjector fault_;

  std::unique_ptr<comm::Communicator> communicator_;
  std::optional<comm::Group> world_;
  parallel::Groups groups_;
  std::optional<data::FileStamps> data_stamps_;  // of rank 0, from before they were opened
  data::DataSets data_;
  std::optional<absl::StatusOr<data::Batch>> batch_;      // this rank's part of the next step's batch
  std::future<absl::StatusOr<data::Batch>> batch_ahead_;  // the same, while a device computes the step before
  std::unique_ptr<parallel::ShardedState> state_;
  std::unique_ptr<parallel::Executor> executor_;
  std::unique_ptr<telemetry::RunLog> log_;
  std::unique_ptr<BackgroundSaver> saver_;  // checkpoint.async; its thread syncs the log
  absl::Duration save_wait_;                // of the step, for the save of the last Save
  std::vector<bool> decay_;

  RunCounters counters_;
  int64_t saved_step_ = -1;    // step of the last save, which may be in progress
  int64_t saved_before_ = -1;  // step of the save before that
  SaveKind saving_ = SaveKind::kNone;
  bool logs_have_trouble_ = false;
  int64_t saves_made_ = 0;             // of those that a person has asked for
  bool stop_asked_ = false;            // by a person or a signal; all ranks agree
  bool evaluation_left_ = false;       // the step is saved, and a resumed run evaluates it
  int64_t skipped_in_a_row_ = 0;       // updates that were not finite, since the last update of this start
  std::map<int64_t, double> losses_;   // on rank 0, by step: those of checkpoint.keep_best
  bool keeps_all_ = false;             // no checkpoint is removed any more
  int64_t data_checked_step_ = 0;      // the last step after which the data files were those of the start
  int64_t steps_without_targets_ = 0;  // in a row
  std::set<std::string> sets_without_targets_;  // evaluation sets that a warning has named
  std::optional<telemetry::StepRecord>
      unlogged_;  // on rank 0: RunCounters::unlogged_json, if the log lacks it
  std::vector<telemetry::RunChange> later_changes_;  // those after the step of unlogged_
  absl::Duration last_save_time_;
  absl::Duration last_line_ = -absl::InfiniteDuration();
  parallel::StepResult result_;
  double hash_low_ = 0, hash_high_ = 0;
  absl::Duration step_begin_;
  double lr_ = 0;
  double tokens_per_second_ = 0;
  std::vector<std::pair<std::string, double>> phases_, operators_;
  StepTimes times_;
};

}  // namespace

const char* LibTorchVersion() { return TORCH_VERSION; }

namespace {

// What the exit code says better (bad data, a full disk, a loss that is not finite) is left to it: the
// launcher does not restart on those.
absl::StatusOr<RunOutcome> Told(const WorkerDeps& deps, absl::StatusOr<RunOutcome> outcome) {
  const ExitCode code = outcome.ok() ? ExitCode::kOk : ExitCodeFor(outcome.status());
  if (code == ExitCode::kWorkerFailed || code == ExitCode::kInternal) {
    deps.control->Fail({.rank = deps.rank,
                        .message = std::string(outcome.status().message()),
                        .peer_failed = code == ExitCode::kWorkerFailed});
  }
  return outcome;
}

// The run of this process; null if none is in progress.
std::atomic<const WorkerDeps*> g_running = nullptr;

// Runs if a library's thread throws, as NCCL's watchdog does when a collective times out. Reports the reason
// to the launcher, then ends the process.
[[noreturn]] void TellWhyItEnds() {
  const absl::Status status = device::StatusOfUncaught();
  const std::string why(status.message());
  const bool is_refused = ExitCodeFor(status) == ExitCode::kEnvironment;
  const WorkerDeps* const deps = g_running.exchange(nullptr);
  std::fprintf(stderr, "%s\n", why.c_str());
  // Without memory or threads a call to the launcher might never return; the exit code and the log say it
  // all.
  if (deps != nullptr && !is_refused) {
    // A collective that takes too long is usually the fault of a peer.
    deps->control->Fail({.rank = deps->rank, .message = why, .peer_failed = true});
  }
  std::_Exit(static_cast<int>(is_refused ? ExitCode::kEnvironment : ExitCode::kWorkerFailed));
}

// Reports uncaught exceptions to the launcher as long as it exists.
class TellsWhyItEnds {
 public:
  explicit TellsWhyItEnds(const WorkerDeps& deps) {
    g_running = &deps;
    before_ = std::set_terminate(TellWhyItEnds);
  }
  ~TellsWhyItEnds() {
    std::set_terminate(before_);
    g_running = nullptr;
  }
  TellsWhyItEnds(const TellsWhyItEnds&) = delete;
  TellsWhyItEnds& operator=(const TellsWhyItEnds&) = delete;

 private:
  std::terminate_handler before_ = nullptr;
};

// Tells how it failed before it is taken down, which can wait for a disk.
absl::StatusOr<RunOutcome> RunAndTell(const WorkerDeps& deps, const device::Device& device, plan::Plan plan) {
  absl::StatusOr<plan::PlannedStep> step = plan::RebuildStep(plan, deps.recipe->model.spec);
  if (!step.ok()) return Told(deps, step.status());
  Trainer trainer(deps, device, std::move(plan), *std::move(step));
  try {
    return Told(deps, trainer.Run());
  } catch (const std::exception& error) {
    return Told(deps, Annotate(device::StatusOf(error), absl::StrCat("rank ", deps.rank)));
  }
}

}  // namespace

absl::StatusOr<RunOutcome> RunWorker(const WorkerDeps& deps) {
  const TellsWhyItEnds tells_why(deps);
  try {
    TRAINCTL_ASSIGN_OR_RETURN(plan::Plan plan, plan::PlanFromJson(deps.plan_json, "plan.json"));
    at::set_num_threads(static_cast<int>(plan.threads_per_worker));
    device::InstallCountingAllocator();
    if (plan.device == "cpu") return RunAndTell(deps, device::Device::Cpu(), std::move(plan));
    if (plan.shares_devices) comm::SetUpSharedDevice(deps.rank);
    const auto device =
        device::Device::Open(deps.device_plugin, {.ordinal = deps.local_rank,
                                                  .deterministic = deps.recipe->run.deterministic,
                                                  .is_shared = plan.shares_devices});
    if (!device.ok()) return Told(deps, device.status());
    (*device)->UseNewStream();
    return RunAndTell(deps, **device, std::move(plan));
  } catch (const std::exception& error) {
    return Told(deps, Annotate(device::StatusOf(error), absl::StrCat("rank ", deps.rank)));
  }
}

}  // namespace trainctl::trainer
