#include "parallel/executor.h"

#include <ATen/Parallel.h>

#include <chrono>
#include <cmath>
#include <optional>
#include <utility>

#include "base/status.h"
#include "device/device.h"
#include "device/error_text.h"
#include "optim/optimizer.h"
#include "schedule/step_hash.h"

namespace trainctl::parallel {
namespace {

using schedule::Instruction;
using schedule::Op;
using schedule::StreamId;

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int64_t CountMasked(const uint8_t* mask, int64_t count) {
  int64_t ones = 0;
  for (int64_t i = 0; i < count; ++i) ones += mask[i] != 0;
  return ones;
}

}  // namespace

// One run over a schedule: the values alive and the step's scalars.
class Executor::Pass {
 public:
  Pass(Executor& executor, const schedule::Schedule& schedule, absl::Span<const nn::TokenView> micro_batches,
       const UpdateOptions* update)
      : e_(executor),
        ledger_(executor.state_.ledger()),
        schedule_(schedule),
        host_micro_batches_(micro_batches),
        update_(update),
        hidden_(executor.runners_.size() + 1),
        saved_(executor.runners_.size()) {
    for (auto& per_block : hidden_) per_block.resize(micro_batches.size());
    for (auto& per_block : saved_) per_block.resize(micro_batches.size());
    gradient_.resize(micro_batches.size());
  }

  absl::Status Run() {
    if (static_cast<int>(host_micro_batches_.size()) != schedule_.num_micro_batches) {
      return InternalError(absl::StrCat("the schedule has ", schedule_.num_micro_batches,
                                        " micro-batches, the batch has ", host_micro_batches_.size()));
    }
    e_.events_.Reset(schedule_.instructions.size());
    e_.phase_seconds_.clear();
    e_.operator_seconds_ = {};
    Upload();
    std::optional<schedule::StepHasher> hasher;
    if (std::exchange(e_.hash_next_, false)) hasher.emplace(schedule_, ledger_);
    int last_communication = Stream::kNoEvent;
    for (size_t i = 0; i < schedule_.instructions.size(); ++i) {
      const Instruction& instruction = schedule_.instructions[i];
      const int event = static_cast<int>(i);
      if (hasher.has_value()) hasher->Add(instruction);
      if (instruction.stream != StreamId::kCompute) {
        Stream& stream = *e_.streams_[static_cast<size_t>(instruction.stream)];
        stream.Launch(
            instruction.waits, event,
            [this, &instruction, i] {
              const int64_t begin_ns = SpanClock();
              TRAINCTL_RETURN_IF_ERROR(Annotated(instruction, Communicate(instruction)));
              return EndSpan(i, begin_ns);
            },
            last_communication);
        // A device's library must hear of the collectives of all groups in one order on every rank, the
        // list's, or ranks can wait for one another for ever. On the CPU recorded is done: streams would not
        // overlap.
        if (!e_.device_.is_cpu()) last_communication = event;
        continue;
      }
      const double wait_begin = Now();
      absl::Status status = e_.events_.Wait(instruction.waits);
      const double begin = Now();
      e_.phase_seconds_["wait"] += begin - wait_begin;
      if (status.ok()) {
        const int64_t begin_ns = SpanClock();
        if (e_.hook_) e_.hook_(instruction);
        status = Annotated(instruction, Compute(instruction));
        if (status.ok()) status = EndSpan(i, begin_ns);
      }
      e_.phase_seconds_[std::string(schedule::OpName(instruction.op))] += Now() - begin;
      if (!status.ok()) {
        e_.events_.Fail(status);
        break;
      }
      e_.events_.Record(event);
    }
    if (hasher.has_value()) e_.executed_hash_ = hasher->Finish();
    const double drain_begin = Now();
    for (auto& stream : e_.streams_) {
      if (stream) stream->Drain();
    }
    // What the next pass launches on other streams, and what the host does with the state, comes after this.
    if (e_.events_.status().ok()) e_.events_.Fail(e_.device_.Synchronize());
    e_.phase_seconds_["wait"] += Now() - drain_begin;
    return e_.events_.status();
  }

  // Of the loss over this rank's unmasked targets so far. Waits for the device.
  double LocalLoss() const {
    double loss = 0;
    e_.device_.CopyToHost(&loss, e_.loss_, sizeof(loss));
    return loss;
  }

  StepResult result;
  int64_t local_loss_tokens = 0;

 private:
  static absl::Status Annotated(const Instruction& instruction, const absl::Status& status) {
    return status.ok() ? status : Annotate(status, schedule::Describe(instruction));
  }

  // steady_clock is CLOCK_MONOTONIC.
  int64_t SpanClock() const {
    if (!e_.span_hook_) return 0;
    return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
  // A traced instruction is done when its work on the device is.
  absl::Status EndSpan(size_t instruction, int64_t begin_ns) const {
    if (!e_.span_hook_) return absl::OkStatus();
    TRAINCTL_RETURN_IF_ERROR(e_.device_.Synchronize());
    e_.span_hook_(instruction, begin_ns, SpanClock());
    return absl::OkStatus();
  }

  void Upload() {
    e_.device_.Zero(e_.loss_, sizeof(double));
    for (const nn::TokenView& view : host_micro_batches_)
      micro_batches_.emplace_back(e_.device_, view, e_.options_.shape);
  }

  absl::Status Communicate(const Instruction& instruction) {
    if (e_.hook_) e_.hook_(instruction);
    switch (instruction.op) {
      case Op::kGather:
        return Gather(instruction);
      case Op::kReduceGradient:
        return ReduceGradient(instruction);
      case Op::kGatherUpdated:
        return e_.GroupsOf(StreamId::kGather)
            .dp_shard.AllGather(absl::StrCat("parameters/", instruction.bucket),
                                e_.state_.parameters(instruction.bucket), ShardBytes(instruction.bucket));
      default:
        return InternalError("this instruction does not belong on a communication stream");
    }
  }

  absl::Status Compute(const Instruction& instruction) {
    try {
      switch (instruction.op) {
        case Op::kCountLossTokens:
          return CountLossTokens();
        case Op::kForward:
        case Op::kRecompute:
          Forward(instruction);
          return absl::OkStatus();
        case Op::kLoss:
          Loss(instruction);
          return absl::OkStatus();
        case Op::kLossAndGradient:
          LossAndGradient(instruction);
          return absl::OkStatus();
        case Op::kBackward:
          Backward(instruction);
          return absl::OkStatus();
        case Op::kReduceLoss:
          return ReduceLoss();
        case Op::kGradNorm:
          return GradNorm();
        case Op::kOptimizerStep:
          OptimizerStep(instruction.bucket);
          return absl::OkStatus();
        default:
          return InternalError("this instruction does not belong on the compute stream");
      }
    } catch (const std::exception& error) {
      return InternalError(device::ErrorText(error));
    }
  }

  // ---- communication ------------------------------------------------------------------------

  int64_t ShardBytes(int bucket) const {
    return ledger_.buckets()[static_cast<size_t>(bucket)].shard_numel * DTypeBytes(e_.state_.compute_dtype());
  }

  absl::Status Gather(const Instruction& instruction) {
    void* slot = e_.state_.parameter_slot(instruction.slot);
    e_.slot_bucket_[static_cast<size_t>(instruction.slot)] = -1;
    e_.state_.CastMaster(instruction.bucket, slot);
    TRAINCTL_RETURN_IF_ERROR(e_.GroupsOf(StreamId::kGather)
                                 .dp_shard.AllGather(absl::StrCat("parameters/", instruction.bucket), slot,
                                                     ShardBytes(instruction.bucket)));
    e_.slot_bucket_[static_cast<size_t>(instruction.slot)] = instruction.bucket;
    return absl::OkStatus();
  }

  absl::Status ReduceGradient(const Instruction& instruction) {
    const layout::Bucket& bucket = ledger_.buckets()[static_cast<size_t>(instruction.bucket)];
    const std::string name = absl::StrCat("gradient/", instruction.bucket);
    float* part = e_.state_.gradient_part(instruction.bucket);
    const bool in_slot = instruction.slot >= 0;
    const float* whole =
        in_slot ? e_.state_.gradient_slot(instruction.slot) : e_.state_.full_gradient(instruction.bucket);
    const bool add = in_slot && !instruction.first;
    const absl::Span<float> scratch = e_.state_.receive_buffer();
    DataGroups& groups = e_.GroupsOf(StreamId::kReduce);
    TRAINCTL_RETURN_IF_ERROR(
        groups.dp_shard.ReduceScatter(name, whole, part, bucket.shard_numel, add, scratch));
    if (!instruction.last) return absl::OkStatus();
    return groups.dp_replicate.AllReduce(name, part, bucket.shard_numel, scratch);
  }

  // ---- compute ------------------------------------------------------------------------------

  nn::BoundParameters Bind(const Instruction& instruction) {
    nn::BoundParameters bound;
    const std::vector<int>& buckets = ledger_.buckets_of_block(instruction.block);
    const int64_t element_bytes = DTypeBytes(e_.state_.compute_dtype());
    for (size_t i = 0; i < buckets.size(); ++i) {
      const layout::Bucket& bucket = ledger_.buckets()[static_cast<size_t>(buckets[i])];
      char* data = nullptr;
      if (instruction.parameter_slots[i] >= 0) {
        const int held = e_.slot_bucket_[static_cast<size_t>(instruction.parameter_slots[i])];
        TRAINCTL_CHECK_MSG(held == bucket.block, "slot ", instruction.parameter_slots[i], " holds bucket ",
                           held, ", not ", bucket.block);
        data = static_cast<char*>(e_.state_.parameter_slot(instruction.parameter_slots[i]));
      } else if (!ledger_.parameters_sharded()) {
        data = static_cast<char*>(e_.state_.parameters(bucket.block));
      }
      float* gradient = nullptr;
      bool accumulate = true;
      if (!instruction.gradient_slots.empty()) {
        const int slot = instruction.gradient_slots[i];
        gradient = slot >= 0 ? e_.state_.gradient_slot(slot) : e_.state_.full_gradient(bucket.block);
        accumulate = instruction.accumulate[i];
      }
      for (size_t k = 0; k < bucket.parameters.size(); ++k) {
        bound[bucket.parameters[k]] = {data == nullptr ? nullptr : data + bucket.offsets[k] * element_bytes,
                                       gradient == nullptr ? nullptr : gradient + bucket.offsets[k],
                                       accumulate};
      }
    }
    return bound;
  }

  const nn::SegmentRunner& Runner(const Instruction& i) const {
    return e_.runners_[static_cast<size_t>(i.block)];
  }
  const nn::TokenView& View(const Instruction& i) const {
    return micro_batches_[static_cast<size_t>(i.micro_batch)].view();
  }
  at::Tensor& Hidden(int block, int m) { return hidden_[static_cast<size_t>(block)][static_cast<size_t>(m)]; }
  nn::Saved& SavedOf(const Instruction& i) {
    return saved_[static_cast<size_t>(i.block)][static_cast<size_t>(i.micro_batch)];
  }

  void Forward(const Instruction& i) {
    const nn::BoundParameters bound = Bind(i);
    nn::Saved* saved = i.keep ? &SavedOf(i) : nullptr;
    at::Tensor output = Runner(i).Forward(bound, Hidden(i.block, i.micro_batch), View(i), saved);
    if (i.op == Op::kRecompute) return;  // its output is known; only what it saved was wanted
    Hidden(i.block + 1, i.micro_batch) = std::move(output);
    if (!i.frees.empty()) Hidden(i.block, i.micro_batch).reset();
  }

  void Loss(const Instruction& i) {
    at::Tensor input = std::move(Hidden(i.block, i.micro_batch));
    Runner(i).Loss(Bind(i), input, View(i), e_.loss_);
    local_loss_tokens += CountMasked(host_micro_batches_[static_cast<size_t>(i.micro_batch)].loss_mask,
                                     e_.options_.shape.tokens());
  }

  void LossAndGradient(const Instruction& i) {
    const nn::BoundParameters bound = Bind(i);
    const float scale =
        result.loss_tokens > 0 ? static_cast<float>(1.0 / static_cast<double>(result.loss_tokens)) : 0.0f;
    const at::Tensor input = std::move(Hidden(i.block, i.micro_batch));
    gradient_[static_cast<size_t>(i.micro_batch)] =
        Runner(i).LossAndGradient(bound, input, View(i), update_->z_loss, scale, e_.loss_);
  }

  void Backward(const Instruction& i) {
    const nn::BoundParameters bound = Bind(i);
    at::Tensor& gradient = gradient_[static_cast<size_t>(i.micro_batch)];
    const at::Tensor input = std::move(Hidden(i.block, i.micro_batch));
    gradient = Runner(i).Backward(bound, input, View(i), std::move(SavedOf(i)), std::move(gradient));
    SavedOf(i).clear();
  }

  // ---- scalars ------------------------------------------------------------------------------

  absl::Status CountLossTokens() {
    int64_t local = 0;
    for (const nn::TokenView& view : host_micro_batches_)
      local += CountMasked(view.loss_mask, e_.options_.shape.tokens());
    double count = static_cast<double>(local);
    TRAINCTL_RETURN_IF_ERROR(e_.ReduceOverData(layout::kLossTokensReduction, absl::MakeSpan(&count, 1)));
    result.loss_tokens = static_cast<int64_t>(count);
    return absl::OkStatus();
  }

  absl::Status ReduceLoss() {
    double loss = LocalLoss();
    TRAINCTL_RETURN_IF_ERROR(e_.ReduceOverData(layout::kLossReduction, absl::MakeSpan(&loss, 1)));
    result.loss = result.loss_tokens > 0 ? loss / static_cast<double>(result.loss_tokens) : 0.0;
    return absl::OkStatus();
  }

  absl::Status GradNorm() {
    e_.device_.Zero(e_.squares_, sizeof(double));
    for (const layout::Bucket& bucket : ledger_.buckets()) {
      const float* part = e_.state_.gradient_part(bucket.block);
      for (const layout::ParameterRange& range : e_.state_.OwnRanges(bucket.block)) {
        e_.device_.kernels().sum_of_squares(e_.squares_, part + range.offset, range.count);
      }
    }
    double squares = 0;
    e_.device_.CopyToHost(&squares, e_.squares_, sizeof(squares));
    TRAINCTL_RETURN_IF_ERROR(
        e_.GroupsOf(StreamId::kCompute)
            .dp_shard.AllReduceScalars(layout::kGradNormReduction, absl::MakeSpan(&squares, 1)));
    result.grad_norm = std::sqrt(squares);
    result.finite = std::isfinite(result.loss) && std::isfinite(result.grad_norm);
    return absl::OkStatus();
  }

  void OptimizerStep(int bucket) {
    if (!update_->apply || !result.finite) return;
    const optim::Optimizer& optimizer = *e_.options_.optimizer;
    kernels::UpdateOptions options{.lr = update_->lr,
                                   .beta1 = update_->beta1,
                                   .beta2 = update_->beta2,
                                   .eps = update_->eps,
                                   .momentum = update_->momentum};
    if (optimizer.prepare != nullptr) optimizer.prepare(update_->update_number, options);
    if (update_->clip_norm > 0) {
      options.gradient_scale =
          static_cast<float>(std::min(1.0, update_->clip_norm / (result.grad_norm + 1e-6)));
    }
    for (const layout::ParameterRange& range : e_.state_.OwnRanges(bucket)) {
      options.weight_decay =
          update_->decay[static_cast<size_t>(range.parameter)] ? update_->weight_decay : 0.0f;
      const auto update = [&](int64_t begin, int64_t end) {
        optim::Update(optimizer, e_.device_.kernels(), e_.state_.parts(bucket),
                      e_.state_.gradient_part(bucket), range.offset + begin, end - begin, options);
      };
      if (e_.device_.is_cpu()) {
        at::parallel_for(0, range.count, (range.count + e_.options_.threads - 1) / e_.options_.threads,
                         update);
      } else {
        update(0, range.count);
      }
    }
    if (!ledger_.parameters_sharded()) e_.state_.CastMaster(bucket, e_.state_.parameters(bucket));
  }

  Executor& e_;
  const layout::Ledger& ledger_;
  const schedule::Schedule& schedule_;
  absl::Span<const nn::TokenView> host_micro_batches_;
  std::vector<nn::DeviceTokens> micro_batches_;
  const UpdateOptions* update_;
  std::vector<std::vector<at::Tensor>> hidden_;  // [block][micro-batch]: the input of that block
  std::vector<std::vector<nn::Saved>> saved_;    // [block][micro-batch]
  std::vector<at::Tensor> gradient_;             // [micro-batch]: of the hidden state under way
};

Executor::Executor(const model::ModelSpec& spec, ShardedState& state, StreamGroups& groups,
                   const schedule::BuildOptions& options)
    : spec_(spec),
      device_(state.device()),
      state_(state),
      groups_(groups),
      options_(options),
      events_(device_) {
  {
    const device::ScopedMemoryTag tag(device_, MemoryTag(schedule::Category::kBuffers));
    rope_ = nn::MakeRopeTables(device_, spec, options.shape.seq_len);
  }
  if (device_.is_cpu()) {
    loss_ = host_sums_.data();
  } else {
    device_sums_ = at::zeros({2}, device_.Options(at::kDouble));
    loss_ = device_sums_.data_ptr<double>();
  }
  squares_ = loss_ + 1;
  const model::SegmentOptions segment_options{options.shape, options.compute_dtype, options.threads,
                                              options.on_device};
  const std::vector<model::Parameter>& inventory = state.ledger().inventory();
  for (int block = 0; block <= model::HeadBlock(spec); ++block) {
    runners_.emplace_back(device_, spec, inventory,
                          model::BuildSegment(spec, inventory, block, segment_options), &rope_,
                          static_cast<int>(options.threads));
    if (device_.is_cpu()) runners_.back().MeasureInto(&operator_seconds_);
  }
  streams_[static_cast<size_t>(StreamId::kGather)] = std::make_unique<Stream>(device_, events_);
  streams_[static_cast<size_t>(StreamId::kReduce)] = std::make_unique<Stream>(device_, events_);
}

Executor::~Executor() = default;

absl::StatusOr<StepResult> Executor::RunStep(const schedule::Schedule& schedule,
                                             absl::Span<const nn::TokenView> micro_batches,
                                             const UpdateOptions& update) {
  slot_bucket_.assign(schedule.parameter_slots.size(), -1);
  Pass pass(*this, schedule, micro_batches, &update);
  TRAINCTL_RETURN_IF_ERROR(pass.Run());
  return pass.result;
}

absl::StatusOr<EvalSums> Executor::RunForward(const schedule::Schedule& schedule,
                                              absl::Span<const nn::TokenView> micro_batches) {
  slot_bucket_.assign(schedule.parameter_slots.size(), -1);
  Pass pass(*this, schedule, micro_batches, nullptr);
  TRAINCTL_RETURN_IF_ERROR(pass.Run());
  return EvalSums{pass.LocalLoss(), pass.local_loss_tokens};
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

absl::Status Executor::ReduceOverData(absl::string_view name, absl::Span<double> values) {
  TRAINCTL_RETURN_IF_ERROR(GroupsOf(StreamId::kCompute).dp_shard.AllReduceScalars(name, values));
  return GroupsOf(StreamId::kCompute).dp_replicate.AllReduceScalars(name, values);
}

}  // namespace trainctl::parallel
