#include "parallel/executor.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "base/life_signs.h"
#include "base/status.h"
#include "device/device.h"
#include "device/error_text.h"
#include "kernels/kernels.h"
#include "nn/operator_failed.h"
#include "nn/segment_run.h"
#include "optim/optimizer.h"
#include "schedule/step_hash.h"

namespace trainctl::parallel {
namespace {

using schedule::Instruction;
using schedule::Op;
using schedule::ValueKind;

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int64_t CountMasked(const uint8_t* mask, int64_t count) {
  int64_t ones = 0;
  for (int64_t i = 0; i < count; ++i) ones += mask[i] != 0;
  return ones;
}

int64_t CountTargets(absl::Span<const nn::TokenView> micro_batches, int64_t tokens) {
  int64_t count = 0;
  for (const nn::TokenView& view : micro_batches) count += CountMasked(view.loss_mask, tokens);
  return count;
}

// Whether a device runs attention as one kernel in every block.
bool IsAttentionFused(const model::Graph& graph) {
  for (const model::Segment& segment : graph.kinds) {
    for (const model::Operator& op : segment.operators) {
      if (op.kind != model::OpKind::kAttention) continue;
      if (!model::RunsFlashAttention(segment, op.As<model::AttentionAttributes>())) return false;
    }
  }
  return true;
}

}  // namespace

// One run over a step: the values alive and the step's scalars.
class Executor::Pass {
 public:
  Pass(Executor& executor, const schedule::Step& step, absl::Span<const nn::TokenView> micro_batches,
       const UpdateOptions* update)
      : e_(executor),
        ledger_(executor.state_.ledger()),
        step_(step),
        class_(ledger_.mesh().coordinate(executor.state_.rank(), layout::Axis::kPp)),
        program_(step.programs[static_cast<size_t>(class_)]),
        host_micro_batches_(micro_batches),
        values_(program_.values.size()) {
    if (update != nullptr)
      update_.emplace(e_.state_, *e_.options_.setting.optimizer, e_.options_.setting.threads, *update);
  }

  absl::Status Run() {
    TRAINCTL_RETURN_IF_ERROR(Begin());
    RunInstructions();
    return End();
  }

  // By the graph, which is made of this pass where there is none; where it cannot be made nothing has been
  // done.
  absl::Status RunGraph() {
    tokens_ = &e_.graph_tokens_;
    TRAINCTL_RETURN_IF_ERROR(Begin());
    if (e_.graph_ == nullptr) {
      TRAINCTL_ASSIGN_OR_RETURN(e_.graph_, device::Graph::Capture(e_.device_, [this] {
                                  RunInstructions();
                                  return e_.events_.status();
                                }));
    }
    const double begin = Now();
    e_.events_.Fail(e_.graph_->Launch());
    Beat();
    e_.phase_seconds_["graph"] += Now() - begin;
    return End();
  }

  // The sum over this rank's unmasked targets, when the pass is done.
  double LocalLoss() const { return OnHost().loss; }

  StepResult result;
  int64_t local_loss_tokens = 0;

 private:
  absl::Status Begin() {
    if (static_cast<int>(host_micro_batches_.size()) != program_.num_micro_batches) {
      return InternalError(absl::StrCat("the step has ", program_.num_micro_batches,
                                        " micro-batches, the batch has ", host_micro_batches_.size()));
    }
    e_.events_.Reset(program_.instructions.size());
    e_.phase_seconds_.clear();
    e_.operator_seconds_ = {};
    try {
      Upload();
    } catch (const std::exception& error) {
      return device::StatusOf(error);
    }
    e_.slot_bucket_.assign(program_.parameter_slots.size(), -1);
    ends_.assign(program_.streams.size(), Stream::kNoEvent);
    for (size_t stream = e_.streams_.size(); stream < program_.streams.size(); ++stream)
      e_.streams_.push_back(std::make_unique<Stream>(e_.device_, e_.events_));
    return absl::OkStatus();
  }

  void RunInstructions() {
    std::optional<schedule::StepHasher> hasher;
    if (std::exchange(e_.hash_next_, false)) hasher.emplace(step_, ledger_, class_);
    for (size_t i = 0; i < program_.instructions.size() && e_.events_.status().ok(); ++i) {
      const Instruction& instruction = program_.instructions[i];
      if (hasher.has_value()) hasher->Add(instruction);
      // One rank exchanges nothing, so there is nothing to overlap.
      if (instruction.stream == schedule::kComputeStream || IsAlone()) {
        e_.events_.Fail(RunHere(i));
      } else {
        Launch(i);
      }
    }
    if (hasher.has_value()) e_.executed_hash_ = hasher->Finish();
  }

  void Launch(size_t i) {
    const Instruction& instruction = program_.instructions[i];
    const int event = static_cast<int>(i);
    e_.streams_[static_cast<size_t>(instruction.stream)]->Launch(
        {instruction.waits.begin(), instruction.waits.end()}, event,
        [this, &instruction, i] { return Timed(i, [&] { return Communicate(instruction); }); },
        last_exchange_);
    if (in_turn()) last_exchange_ = event;
    ends_[static_cast<size_t>(instruction.stream)] = event;
  }

  // On the compute stream.
  absl::Status RunHere(size_t i) {
    const Instruction& instruction = program_.instructions[i];
    const int event = static_cast<int>(i);
    const double wait_begin = Now();
    if (!IsAlone()) {
      TRAINCTL_RETURN_IF_ERROR(e_.events_.Wait(instruction.waits));
      const bool exchanges = in_turn() && e_.tensor_ != nullptr && instruction.block >= 0;
      if (exchanges && last_exchange_ != Stream::kNoEvent)
        TRAINCTL_RETURN_IF_ERROR(e_.events_.WaitUntilRecorded(last_exchange_));
      if (exchanges) last_exchange_ = event;
    }
    const double begin = Now();
    e_.phase_seconds_["wait"] += begin - wait_begin;
    const absl::Status status = Timed(i, [&] {
      if (e_.hook_) e_.hook_(instruction);
      const absl::Status computed = Compute(instruction);
      Beat();
      FreeValues(instruction);
      return computed;
    });
    e_.phase_seconds_[std::string(schedule::OpName(instruction.op))] += Now() - begin;
    TRAINCTL_RETURN_IF_ERROR(status);
    queued_.push_back(event);
    if (!IsLaunchedWithNext(i)) Record();
    return absl::OkStatus();
  }

  // A device's library must hear of the exchanges of all groups in one order on every rank, the list's, or
  // ranks can wait for one another for ever. On the CPU recorded is done: streams would not overlap.
  bool in_turn() const { return !e_.device_.is_cpu(); }

  absl::Status End() {
    const double begin = Now();
    e_.events_.Fail(Finish());
    e_.phase_seconds_["wait"] += Now() - begin;
    return e_.events_.status();
  }

  // Waits for all that was launched, on the device once, and reads the sums. What the next pass launches on
  // other streams, and what the host does with the state, comes after this.
  absl::Status Finish() {
    for (auto& stream : e_.streams_) {
      if (stream) stream->Drain();
    }
    std::erase(ends_, Stream::kNoEvent);
    TRAINCTL_RETURN_IF_ERROR(e_.events_.Wait(ends_));
    if (!e_.device_.is_cpu()) {
      try {
        e_.device_.CopyToPinned(e_.pinned_scalars_, e_.scalars_);
      } catch (const std::exception& error) {
        return device::StatusOf(error);
      }
      TRAINCTL_RETURN_IF_ERROR(e_.device_.Synchronize());
    }
    if (update_.has_value() && IsAlone()) TakeSums(OnHost().loss, OnHost().squares);
    return absl::OkStatus();
  }

  PassScalars& OnHost() const {
    return e_.device_.is_cpu() ? e_.cpu_scalars_ : *static_cast<PassScalars*>(e_.pinned_scalars_.data_ptr());
  }

  // A rank that is alone has nobody to add its sums to: it reads them with the end of the pass.
  bool IsAlone() const { return ledger_.mesh().world_size() == 1; }

  void TakeSums(double loss, double squares) {
    result.loss = result.loss_tokens > 0 ? loss / static_cast<double>(result.loss_tokens) : 0.0;
    result.grad_norm = std::sqrt(squares);
    result.finite = std::isfinite(result.loss) && std::isfinite(result.grad_norm);
  }

  // Consecutive updates are one launch on a device, unless a trace or a check wants each one.
  bool IsLaunchedWithNext(size_t instruction) const {
    const auto& list = program_.instructions;
    return !e_.device_.is_cpu() && !e_.span_hook_ && !e_.checks_ &&
           list[instruction].op == Op::kOptimizerStep && instruction + 1 < list.size() &&
           list[instruction + 1].op == Op::kOptimizerStep;
  }

  // What the compute stream has been given, for the other streams.
  void Record() {
    for (const int event : queued_) {
      if (!IsAlone()) e_.events_.Record(event);
    }
    queued_.clear();
  }

  static absl::Status Annotated(const Instruction& instruction, const absl::Status& status) {
    return status.ok() ? status : Annotate(status, schedule::Describe(instruction));
  }

  // Does an instruction, and reports its span to a trace. One that is traced or checked is done when its work
  // on the device is.
  template <typename Work>
  absl::Status Timed(size_t i, const Work& work) const {
    const int64_t begin_ns = SpanClock();
    const Instruction& instruction = program_.instructions[i];
    TRAINCTL_RETURN_IF_ERROR(Annotated(instruction, work()));
    if (!e_.span_hook_ && !e_.checks_) return absl::OkStatus();
    TRAINCTL_RETURN_IF_ERROR(Annotated(instruction, e_.device_.Synchronize()));
    if (e_.span_hook_) e_.span_hook_(i, begin_ns, SpanClock());
    return absl::OkStatus();
  }

  // steady_clock is CLOCK_MONOTONIC.
  int64_t SpanClock() const {
    if (!e_.span_hook_) return 0;
    return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

  void Upload() {
    OnHost() = {};
    if (update_.has_value()) {
      OnHost().update = update_->KernelOptions();
      result.loss_tokens = CountTargets(host_micro_batches_, e_.options_.shape().tokens());
      OnHost().scale = ScaleOfGradients();
    }
    if (!e_.device_.is_cpu()) e_.device_.CopyPinnedToDevice(e_.scalars_, e_.pinned_scalars_);
    const model::MicroBatchShape shape = e_.options_.shape();
    if (e_.graph_ != nullptr && tokens_ == &e_.graph_tokens_) {
      tokens_->Replace(e_.device_, host_micro_batches_, shape);
    } else {
      *tokens_ = nn::DeviceTokens(e_.device_, host_micro_batches_, shape);
    }
  }

  // What each operation does, in the order of Op.
  absl::Status Handle(const Instruction& instruction) {
    using Handler = absl::Status (Pass::*)(const Instruction&);
    static constexpr std::array<Handler, schedule::kNumOps> kHandlers = {
        &Pass::Gather,           // kGather
        &Pass::Forward,          // kForward
        &Pass::Loss,             // kLoss
        &Pass::LossAndGradient,  // kLossAndGradient
        &Pass::Recompute,        // kRecompute
        &Pass::Backward,         // kBackward
        &Pass::BackwardInput,    // kBackwardInput
        &Pass::BackwardWeight,   // kBackwardWeight
        &Pass::Send,             // kSend
        &Pass::Receive,          // kReceive
        &Pass::ReduceGradient,   // kReduceGradient
        &Pass::SumCopies,        // kSumCopies
        &Pass::CountLossTokens,  // kCountLossTokens
        &Pass::ReduceLoss,       // kReduceLoss
        &Pass::GradNorm,         // kGradNorm
        &Pass::OptimizerStep,    // kOptimizerStep
        &Pass::GatherUpdated,    // kGatherUpdated
    };
    return (this->*kHandlers[static_cast<size_t>(instruction.op)])(instruction);
  }

  // What classes send one another is used by other streams than the one that allocated it.
  void UseHere(const Instruction& instruction) {
    if (step_.programs.size() == 1) return;
    for (const int value : instruction.reads) {
      const at::Tensor& tensor = values_[static_cast<size_t>(value)].tensor;
      if (tensor.defined()) e_.device_.UseHere(tensor);
    }
  }

  absl::Status Communicate(const Instruction& instruction) {
    if (e_.hook_) e_.hook_(instruction);
    UseHere(instruction);
    const absl::Status status = Handle(instruction);
    FreeValues(instruction);
    return status;
  }

  absl::Status Compute(const Instruction& instruction) {
    if (e_.tensor_ != nullptr) e_.tensor_->SetPlace(schedule::Describe(instruction));
    try {
      UseHere(instruction);
      return Handle(instruction);
    } catch (const nn::OperatorFailed& failed) {
      return failed.status;
    } catch (const std::exception& error) {
      return device::StatusOf(error);
    }
  }

  // ---- values -------------------------------------------------------------------------------

  // What a value of the step holds.
  struct Stored {
    at::Tensor tensor;      // kHidden, kHiddenGradient
    nn::Saved saved;        // kSaved
    nn::WeightQueue queue;  // kQueued
  };

  // The value of a kind among those that an instruction reads or writes; null: none.
  Stored* Find(const schedule::Ids& values, ValueKind kind) {
    for (int value : values) {
      if (program_.values[static_cast<size_t>(value)].kind == kind)
        return &values_[static_cast<size_t>(value)];
    }
    return nullptr;
  }
  // A tensor that the instruction reads, taken out where it frees it; undefined where it reads none.
  at::Tensor Take(const Instruction& instruction, ValueKind kind) {
    Stored* const stored = Find(instruction.reads, kind);
    if (stored == nullptr) return {};
    return Find(instruction.frees, kind) == nullptr ? stored->tensor : std::move(stored->tensor);
  }
  void Put(const Instruction& instruction, ValueKind kind, at::Tensor tensor) {
    Stored* const stored = Find(instruction.writes, kind);
    if (stored != nullptr) stored->tensor = std::move(tensor);
  }
  void FreeValues(const Instruction& instruction) {
    for (int value : instruction.frees) values_[static_cast<size_t>(value)] = {};
  }

  // ---- communication ------------------------------------------------------------------------

  int64_t ShardBytes(int bucket) const {
    return ledger_.buckets()[static_cast<size_t>(bucket)].shard_numel * DTypeBytes(e_.state_.compute_dtype());
  }

  // Element `offset` of a gradient.
  void* GradientAt(void* first, int64_t offset) const {
    return static_cast<char*>(first) + offset * DTypeBytes(e_.state_.gradient_dtype());
  }

  // Clears the gradient of the bucket's k-th parameter.
  void ClearGradient(void* gradient, const layout::Bucket& bucket, size_t k) const {
    const int64_t begin = bucket.offsets[k];
    const int64_t end = k + 1 < bucket.offsets.size() ? bucket.offsets[k + 1] : bucket.numel;
    e_.device_.Zero(GradientAt(gradient, begin), (end - begin) * DTypeBytes(e_.state_.gradient_dtype()));
  }

  comm::Group& GroupOf(int id) { return e_.groups_.Of(step_.groups[static_cast<size_t>(id)]); }

  absl::Status AllGather(const Instruction& instruction, void* whole) {
    return GroupOf(instruction.groups[0])
        .AllGather(absl::StrCat("parameters/", instruction.bucket), whole, ShardBytes(instruction.bucket));
  }

  absl::Status Gather(const Instruction& instruction) {
    void* slot = e_.state_.parameter_slot(instruction.slot);
    e_.slot_bucket_[static_cast<size_t>(instruction.slot)] = -1;
    e_.state_.CastMaster(instruction.bucket, slot);
    TRAINCTL_RETURN_IF_ERROR(AllGather(instruction, slot));
    e_.slot_bucket_[static_cast<size_t>(instruction.slot)] = instruction.bucket;
    return absl::OkStatus();
  }

  absl::Status GatherUpdated(const Instruction& instruction) {
    return AllGather(instruction, e_.state_.parameters(instruction.bucket));
  }

  // The input of a block, or its gradient: the one value that a message is.
  Stored& Moved(int value) { return values_[static_cast<size_t>(value)]; }
  int64_t BytesOf(int value) const { return program_.values[static_cast<size_t>(value)].bytes; }

  absl::Status Send(const Instruction& i) {
    const int value = i.reads[0];
    const at::Tensor& tensor = Moved(value).tensor;
    TRAINCTL_CHECK(tensor.is_contiguous() && static_cast<int64_t>(tensor.nbytes()) == BytesOf(value));
    return e_.groups_.OfMessages(class_, i.peer)
        .Send(schedule::Describe(i), tensor.data_ptr(), BytesOf(value), /*to=*/1);
  }

  absl::Status Receive(const Instruction& i) {
    const int value = i.writes[0];
    const model::Segment& segment = Runner(i).segment();
    const model::Value& input = segment.values[static_cast<size_t>(segment.inputs[0])];
    at::Tensor tensor =
        at::empty({input.rows, input.cols}, e_.device_.Options(nn::ToAten(e_.state_.compute_dtype())));
    TRAINCTL_CHECK(static_cast<int64_t>(tensor.nbytes()) == BytesOf(value));
    TRAINCTL_RETURN_IF_ERROR(
        e_.groups_.OfMessages(i.peer, class_)
            .Receive(schedule::Describe(i), tensor.data_ptr(), BytesOf(value), /*from=*/0));
    Moved(value).tensor = std::move(tensor);
    return absl::OkStatus();
  }

  absl::Status SumCopies(const Instruction& instruction) {
    const int bucket = instruction.bucket;
    const std::string name = absl::StrCat("gradient/", bucket);
    void* const part = e_.state_.gradient_part(bucket);
    for (const int id : instruction.groups) {
      const schedule::Group& group = step_.groups[static_cast<size_t>(id)];
      comm::Group& ranks = e_.groups_.Of(group);
      TRAINCTL_RETURN_IF_ERROR(e_.CheckListed(name, ranks));
      const auto sum = [&](int64_t offset, int64_t count) {
        return ranks.AllReduce(name, GradientAt(part, offset), count, e_.state_.receive_buffer(),
                               {.dtype = step_.types.sum});
      };
      if (group.axis == layout::Axis::kPp) {
        TRAINCTL_RETURN_IF_ERROR(sum(0, ledger_.optimizer_numel(bucket)));
        continue;
      }
      for (const layout::ParameterRange& range :
           ledger_.RangesOfCopies(bucket, e_.state_.rank(), ranks.size()))
        TRAINCTL_RETURN_IF_ERROR(sum(range.offset, range.count));
    }
    return absl::OkStatus();
  }

  absl::Status ReduceGradient(const Instruction& instruction) {
    const layout::Bucket& bucket = ledger_.buckets()[static_cast<size_t>(instruction.bucket)];
    const std::string name = absl::StrCat("gradient/", instruction.bucket);
    void* part = e_.state_.gradient_part(instruction.bucket);
    const bool in_slot = instruction.slot >= 0;
    const void* whole =
        in_slot ? e_.state_.gradient_slot(instruction.slot) : e_.state_.full_gradient(instruction.bucket);
    const bool add = in_slot && !instruction.first;
    const absl::Span<uint8_t> scratch = e_.state_.receive_buffer();
    const comm::Reduction how{.dtype = step_.types.sum};
    for (int id : instruction.groups) {
      const layout::Axis axis = step_.groups[static_cast<size_t>(id)].axis;
      TRAINCTL_RETURN_IF_ERROR(e_.CheckListed(name, GroupOf(id)));
      TRAINCTL_RETURN_IF_ERROR(
          axis == layout::Axis::kDpShard
              ? GroupOf(id).ReduceScatter(name, whole, part, bucket.shard_numel, add, scratch, how)
              : GroupOf(id).AllReduce(name, part, bucket.shard_numel, scratch, how));
    }
    return absl::OkStatus();
  }

  // ---- compute ------------------------------------------------------------------------------

  nn::BoundParameters Bind(const Instruction& instruction) {
    const std::vector<int>& parameters = e_.model_->blocks[static_cast<size_t>(instruction.block)].parameters;
    nn::BoundParameters bound(parameters.size());
    const std::vector<int>& buckets = ledger_.buckets_of_block(instruction.block);
    const int64_t element_bytes = DTypeBytes(e_.state_.compute_dtype());
    for (size_t i = 0; i < buckets.size(); ++i) {
      const layout::Bucket& bucket = ledger_.buckets()[static_cast<size_t>(buckets[i])];
      char* data = nullptr;
      if (i < instruction.parameter_slots.size() && instruction.parameter_slots[i] >= 0) {
        const int held = e_.slot_bucket_[static_cast<size_t>(instruction.parameter_slots[i])];
        TRAINCTL_CHECK_MSG(held == bucket.id, "slot ", instruction.parameter_slots[i], " holds bucket ", held,
                           ", not ", bucket.id);
        data = static_cast<char*>(e_.state_.parameter_slot(instruction.parameter_slots[i]));
      } else if (!ledger_.parameters_sharded()) {
        data = static_cast<char*>(e_.state_.parameters(bucket.id));
      }
      void* gradient = nullptr;
      bool accumulate = true;
      if (!instruction.gradients.empty()) {
        const schedule::GradientWrite& write = instruction.gradients[i];
        const bool in_one = instruction.op != Op::kBackwardInput && instruction.op != Op::kBackwardWeight;
        TRAINCTL_CHECK_MSG(!in_one || write.accumulate == write.accumulate_weights,
                           "a whole backward among split ones would need two ways to add to one bucket");
        gradient = write.slot >= 0 ? e_.state_.gradient_slot(write.slot) : e_.state_.full_gradient(bucket.id);
        accumulate = instruction.op == Op::kBackwardWeight ? write.accumulate_weights : write.accumulate;
      }
      for (size_t k = 0; k < bucket.parameters.size(); ++k) {
        const auto position = std::find(parameters.begin(), parameters.end(), bucket.parameters[k]);
        if (position == parameters.end()) {
          // Belongs to another block that shares the bucket (tied embeddings). That block may add its
          // gradient later, or never if it is in another stage, so the first write of the bucket clears it.
          if (gradient != nullptr && !accumulate) ClearGradient(gradient, bucket, k);
          continue;
        }
        bound[static_cast<size_t>(position - parameters.begin())] = {
            data == nullptr ? nullptr : data + bucket.offsets[k] * element_bytes,
            gradient == nullptr ? nullptr : GradientAt(gradient, bucket.offsets[k]), accumulate};
      }
    }
    return bound;
  }

  const nn::SegmentRunner& Runner(const Instruction& i) const {
    return e_.runners_[static_cast<size_t>(e_.model_->blocks[static_cast<size_t>(i.block)].kind)];
  }
  const nn::TokenView& View(const Instruction& i) const {
    return tokens_->view(static_cast<size_t>(i.micro_batch));
  }

  absl::Status Forward(const Instruction& i) {
    const nn::BoundParameters bound = Bind(i);
    Stored* const saved = Find(i.writes, ValueKind::kSaved);
    nn::Saved* const keep = saved != nullptr ? &saved->saved : nullptr;
    const at::Tensor input = Find(i.reads, ValueKind::kHidden) != nullptr
                                 ? Find(i.reads, ValueKind::kHidden)->tensor
                                 : at::Tensor();
    Put(i, ValueKind::kHidden, Runner(i).Forward(bound, input, View(i), keep));
    return absl::OkStatus();
  }

  absl::Status Recompute(const Instruction& i) {
    const Stored* const hidden = Find(i.reads, ValueKind::kHidden);
    Stored* const saved = Find(i.writes, ValueKind::kSaved);
    TRAINCTL_CHECK(hidden != nullptr && saved != nullptr);
    saved->saved = Runner(i).Recompute(Bind(i), hidden->tensor, View(i));
    return absl::OkStatus();
  }

  absl::Status Loss(const Instruction& i) {
    const at::Tensor input = Take(i, ValueKind::kHidden);
    Runner(i).Loss(Bind(i), input, View(i), &e_.scalars_->loss);
    local_loss_tokens += CountMasked(host_micro_batches_[static_cast<size_t>(i.micro_batch)].loss_mask,
                                     e_.options_.shape().tokens());
    return absl::OkStatus();
  }

  absl::Status LossAndGradient(const Instruction& i) {
    const nn::BoundParameters bound = Bind(i);
    const at::Tensor input = Take(i, ValueKind::kHidden);
    Put(i, ValueKind::kHiddenGradient,
        Runner(i).LossAndGradient(bound, input, View(i), update_->options().z_loss, &e_.scalars_->scale,
                                  &e_.scalars_->loss));
    return absl::OkStatus();
  }

  // What the forward saved, for its backward to consume.
  nn::Saved TakeSaved(const Instruction& i) {
    Stored* const saved = Find(i.reads, ValueKind::kSaved);
    return saved != nullptr ? std::exchange(saved->saved, {}) : nn::Saved();
  }

  absl::Status Backward(const Instruction& i) {
    const nn::BoundParameters bound = Bind(i);
    const at::Tensor input = Take(i, ValueKind::kHidden);
    at::Tensor gradient =
        Runner(i).Backward(bound, input, View(i), TakeSaved(i), Take(i, ValueKind::kHiddenGradient));
    Put(i, ValueKind::kHiddenGradient, std::move(gradient));
    return absl::OkStatus();
  }

  absl::Status BackwardInput(const Instruction& i) {
    const nn::BoundParameters bound = Bind(i);
    const at::Tensor input = Take(i, ValueKind::kHidden);
    at::Tensor gradient =
        Runner(i).BackwardInput(bound, input, View(i), TakeSaved(i), Take(i, ValueKind::kHiddenGradient),
                                Find(i.writes, ValueKind::kQueued)->queue);
    Put(i, ValueKind::kHiddenGradient, std::move(gradient));
    return absl::OkStatus();
  }

  absl::Status BackwardWeight(const Instruction& i) {
    Runner(i).BackwardWeight(Bind(i), std::exchange(Find(i.reads, ValueKind::kQueued)->queue, {}));
    return absl::OkStatus();
  }

  // ---- scalars ------------------------------------------------------------------------------

  absl::Status SumScalars(const Instruction& instruction, absl::string_view name, double& value) {
    for (int id : instruction.groups) {
      TRAINCTL_RETURN_IF_ERROR(e_.CheckListed(name, GroupOf(id)));
      TRAINCTL_RETURN_IF_ERROR(GroupOf(id).AllReduceScalars(name, absl::MakeSpan(&value, 1)));
    }
    return absl::OkStatus();
  }

  // Every class sees the same tokens.
  absl::Status CountLossTokens(const Instruction& instruction) {
    if (IsAlone()) return absl::OkStatus();
    double count = static_cast<double>(result.loss_tokens);
    TRAINCTL_RETURN_IF_ERROR(SumScalars(instruction, layout::kLossTokensReduction, count));
    result.loss_tokens = static_cast<int64_t>(count);
    const float scale = ScaleOfGradients();
    e_.device_.CopyToDevice(&e_.scalars_->scale, &scale, sizeof(scale));
    return absl::OkStatus();
  }

  float ScaleOfGradients() const {
    return result.loss_tokens > 0 ? static_cast<float>(1.0 / static_cast<double>(result.loss_tokens)) : 0.0f;
  }

  absl::Status ReduceLoss(const Instruction& instruction) {
    if (IsAlone()) return absl::OkStatus();
    e_.device_.CopyToHost(&loss_, &e_.scalars_->loss, sizeof(loss_));
    return SumScalars(instruction, layout::kLossReduction, loss_);
  }

  absl::Status GradNorm(const Instruction& instruction) {
    PassScalars* const scalars = e_.scalars_;
    float* const factor_there = &scalars->update.factor;
    update_->AddSquares(&scalars->squares);
    const double clip_norm = update_->options().clip_norm;
    if (IsAlone()) {
      e_.device_.kernels()
          .Masters(e_.state_.master_dtype())
          .clip_factor(factor_there, &scalars->loss, &scalars->squares, clip_norm);
      return absl::OkStatus();
    }
    double squares = 0;
    e_.device_.CopyToHost(&squares, &scalars->squares, sizeof(squares));
    TRAINCTL_RETURN_IF_ERROR(SumScalars(instruction, layout::kGradNormReduction, squares));
    TakeSums(loss_, squares);
    float factor = 0;
    kernels::Cpu().masters_f32.clip_factor(&factor, &loss_, &squares, clip_norm);
    e_.device_.CopyToDevice(factor_there, &factor, sizeof(factor));
    return absl::OkStatus();
  }

  absl::Status OptimizerStep(const Instruction& instruction) {
    // Without a counted target there is no gradient, and weight decay alone is not training. All ranks have
    // summed the count by now.
    if (!update_->options().apply || result.loss_tokens == 0) return absl::OkStatus();
    update_->Add(instruction.bucket);
    const auto index = static_cast<size_t>(&instruction - program_.instructions.data());
    if (!IsLaunchedWithNext(index)) update_->Launch(&e_.scalars_->update);
    return absl::OkStatus();
  }

  Executor& e_;
  const layout::Ledger& ledger_;
  const schedule::Step& step_;
  const int class_;
  const schedule::Program& program_;
  absl::Span<const nn::TokenView> host_micro_batches_;
  nn::DeviceTokens own_tokens_;
  nn::DeviceTokens* tokens_ = &own_tokens_;
  std::optional<ParameterUpdate> update_;  // none: of an evaluation
  std::vector<Stored> values_;             // by the step's value ids
  int last_exchange_ = Stream::kNoEvent;
  std::vector<int> ends_;    // the last event of each stream but that of computing
  std::vector<int> queued_;  // events of computing that are not recorded yet
  double loss_ = 0;          // over all ranks
};

Executor::Executor(const model::Architecture& spec, ShardedState& state, Groups& groups,
                   const schedule::BuildOptions& options)
    : device_(state.device()), state_(state), groups_(groups), options_(options), events_(device_) {
  for (const layout::Reduction& reduction : state.ledger().Reductions()) sums_.insert(reduction.name);
  {
    const device::ScopedMemoryTag tag(device_, MemoryTag(schedule::Category::kBuffers));
    rope_ = nn::MakeRopeTables(device_, model::AnglesOf(spec), options.setting.seq_len);
  }
  scalars_ = &cpu_scalars_;
  if (!device_.is_cpu()) {
    constexpr int64_t kBytes = sizeof(PassScalars);
    pinned_scalars_ = device_.PinnedBytes(kBytes);
    device_scalars_ = at::zeros({kBytes}, device_.Options(at::kByte));
    scalars_ = static_cast<PassScalars*>(device_scalars_.data_ptr());
  }
  ReserveWorkspace();
  const layout::Ledger& ledger = state.ledger();
  if (ledger.mesh().tp > 1)
    tensor_ = std::make_unique<nn::TensorGroup>(groups.Of(layout::Axis::kTp, schedule::kComputeStream));
  const model::SegmentOptions segment =
      options.segment(ledger, ledger.mesh().coordinate(state.rank(), layout::Axis::kTp));
  model_ = model::BuildGraph(spec, ledger.inventory(), segment);
  for (const model::Segment& kind : model_->kinds) {
    runners_.emplace_back(device_, kind, rope_.data(), static_cast<int>(options.setting.threads),
                          tensor_.get());
    if (device_.is_cpu()) runners_.back().MeasureInto(&operator_seconds_);
  }
  streams_.push_back(nullptr);  // of computing: the caller's thread
}

// LibTorch takes a device's workspace for products when the first one runs, and keeps it.
void Executor::ReserveWorkspace() const {
  if (device_.is_cpu()) return;
  const device::ScopedMemoryTag tag(device_, MemoryTag(schedule::Category::kBuffers));
  const at::Tensor factor = at::zeros({8, 8}, device_.Options(nn::ToAten(state_.compute_dtype())));
  at::Tensor product = at::empty_like(factor);
  at::mm_out(product, factor, factor);
}

Executor::~Executor() = default;

void Executor::CheckOperators() {
  checks_ = true;
  for (nn::SegmentRunner& runner : runners_) runner.CheckOperators();
}

absl::StatusOr<StepResult> Executor::RunStep(const schedule::Step& step,
                                             absl::Span<const nn::TokenView> micro_batches,
                                             const UpdateOptions& update) {
  if (MayUseGraph(micro_batches, update)) return RunGraph(step, micro_batches, update);
  DropGraph();
  Pass pass(*this, step, micro_batches, &update);
  TRAINCTL_RETURN_IF_ERROR(pass.Run());
  return pass.result;
}

bool Executor::DropGraph() {
  graphed_.reset();
  return std::exchange(graph_, nullptr) != nullptr;
}

bool Executor::MayUseGraph(absl::Span<const nn::TokenView> micro_batches, const UpdateOptions& update) const {
  return report_no_graph_ != nullptr && update.apply && !hook_ && !span_hook_ && !checks_ && !hash_next_ &&
         state_.ledger().mesh().world_size() == 1 && device::Graph::IsThereFor(device_) &&
         IsAttentionFused(*model_) && nn::AreWholeSequences(micro_batches, options_.shape()) &&
         CountTargets(micro_batches, options_.shape().tokens()) > 0;  // a graph always updates
}

absl::StatusOr<StepResult> Executor::RunGraph(const schedule::Step& step,
                                              absl::Span<const nn::TokenView> micro_batches,
                                              const UpdateOptions& update) {
  const Graphed wanted{&step, update.clip_norm, update.z_loss, update.decay};
  std::optional<StepResult> eager;
  if (graphed_ != wanted) {
    DropGraph();
    UpdateOptions none = update;
    none.apply = false;
    Pass pass(*this, step, micro_batches, &none);
    TRAINCTL_RETURN_IF_ERROR(pass.Run());
    eager = pass.result;
  }
  Pass pass(*this, step, micro_batches, &update);
  const absl::Status status = pass.RunGraph();
  if (graph_ == nullptr) {
    if (ExitCodeFor(status) == ExitCode::kWorkerFailed) return status;
    std::exchange(report_no_graph_, nullptr)(std::string(status.message()));
    return RunStep(step, micro_batches, update);
  }
  TRAINCTL_RETURN_IF_ERROR(status);
  graphed_ = wanted;
  if (eager.has_value()) TRAINCTL_RETURN_IF_ERROR(HoldAgainst(*eager, pass.result));
  return pass.result;
}

absl::Status Executor::HoldAgainst(const StepResult& eager, const StepResult& graph) {
  // Some attention kernels sum gradients in any order.
  constexpr double kRounding = 1e-4;
  const auto near = [](double a, double b) {
    return std::isfinite(a) ? std::abs(a - b) <= kRounding * std::abs(a) : !std::isfinite(b);
  };
  if (near(eager.loss, graph.loss) && near(eager.grad_norm, graph.grad_norm)) return absl::OkStatus();
  return InternalError(absl::StrCat("a step has loss ", graph.loss, " and gradient norm ", graph.grad_norm,
                                    " by its graph, ", eager.loss, " and ", eager.grad_norm,
                                    " without it; run.graphs = false trains without"));
}

absl::StatusOr<EvalSums> Executor::RunForward(const schedule::Step& step,
                                              absl::Span<const nn::TokenView> micro_batches) {
  const auto run = [&]() -> absl::StatusOr<EvalSums> {
    Pass pass(*this, step, micro_batches, nullptr);
    TRAINCTL_RETURN_IF_ERROR(pass.Run());
    return EvalSums{pass.LocalLoss(), pass.local_loss_tokens};
  };
  absl::StatusOr<EvalSums> sums = run();
  if (!sums.ok() && DropGraph()) sums = run();
  return sums;
}

std::map<std::string, double> Executor::operator_seconds() const {
  std::map<std::string, double> seconds;
  for (size_t kind = 0; kind < model::kNumOpKinds; ++kind) {
    const std::string name(model::OpKindName(static_cast<model::OpKind>(kind)));
    if (operator_seconds_.forward[kind] > 0) seconds[name] = operator_seconds_.forward[kind];
    if (operator_seconds_.backward[kind] > 0) seconds[name + " backward"] = operator_seconds_.backward[kind];
  }
  return seconds;
}

absl::Status Executor::CheckListed(absl::string_view sum, const comm::Group& group) const {
  // Over one rank there is nothing to sum, and the ledger lists nothing.
  const std::string name = absl::StrCat(sum, "/", group.axis());
  if (group.size() > 1 && !sums_.contains(name))
    return InternalError(absl::StrCat("the sum '", name, "' is not among the ledger's"));
  return absl::OkStatus();
}

// Of what each coordinate of the data axes and each stage has a part.
std::vector<schedule::Group> Executor::ScalarGroups() const {
  const layout::Mesh& mesh = state_.ledger().mesh();
  std::vector<schedule::Group> groups = {{layout::Axis::kDpShard, schedule::kComputeStream, {}},
                                         {layout::Axis::kDpReplicate, schedule::kComputeStream, {}}};
  if (mesh.pp > 1) {
    std::vector<int> all(static_cast<size_t>(mesh.pp));
    std::iota(all.begin(), all.end(), 0);
    groups.push_back({layout::Axis::kPp, schedule::kComputeStream, std::move(all)});
  }
  return groups;
}

absl::Status Executor::SumOverRanks(absl::string_view name, absl::Span<double> values) {
  for (const schedule::Group& group : ScalarGroups()) {
    comm::Group& ranks = groups_.Of(group);
    TRAINCTL_RETURN_IF_ERROR(CheckListed(name, ranks));
    TRAINCTL_RETURN_IF_ERROR(ranks.AllReduceScalars(name, values));
  }
  return absl::OkStatus();
}

absl::Status Executor::CountVotes(absl::Span<double> votes) {
  std::vector<schedule::Group> groups = ScalarGroups();
  if (state_.ledger().mesh().tp > 1) groups.push_back({layout::Axis::kTp, schedule::kComputeStream, {}});
  for (const schedule::Group& group : groups)
    TRAINCTL_RETURN_IF_ERROR(groups_.Of(group).AllReduceScalars("agree", votes));
  return absl::OkStatus();
}

}  // namespace trainctl::parallel
