#include "schedule/program_builder.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace trainctl::schedule {

ProgramBuilder::ProgramBuilder(const Inputs& in, int own_class, Program& program)
    : in_(in),
      class_(own_class),
      works_(in.order->works[static_cast<size_t>(own_class)]),
      program_(program),
      row_of_block_(static_cast<size_t>(in.step->num_blocks()) + 1, -1),
      num_received_(in.order->channels.size(), 0) {
  // Its blocks, and those that take what they make.
  int num_rows = 0;
  for (int stage : in.step->placement.StagesOf(own_class)) {
    const int end = in.step->stage_begin[static_cast<size_t>(stage) + 1];
    for (int block = in.step->stage_begin[static_cast<size_t>(stage)]; block <= end; ++block) {
      int& row = row_of_block_[static_cast<size_t>(block)];
      if (row < 0) row = num_rows++;
    }
  }
  held_.resize(static_cast<size_t>(num_rows) * static_cast<size_t>(in.step->num_micro_batches));
}

absl::Status ProgramBuilder::Build() {
  program_.num_micro_batches = in_.step->num_micro_batches;
  if (works_.empty() && in_.step->has_update) {
    return BadDataError(
        absl::StrCat("pipeline schedule ", in_.step->order, ": rank ", class_, " has no pass"));
  }
  program_.streams = {{"compute"}, {"gather"}, {"reduce"}};
  if (in_.ledger != nullptr) {
    own_buckets_ = in_.ledger->BucketsOfOwner(class_);
    AddStorage();
    PlanUses();
    PlanReductions();
  }
  size_t num_messages = 0;
  for (const std::vector<int>* channels : {&in_.order->channels_from[static_cast<size_t>(class_)],
                                           &in_.order->channels_to[static_cast<size_t>(class_)]}) {
    for (int id : *channels) num_messages += in_.order->channels[static_cast<size_t>(id)].messages.size();
  }
  // As many as there are without parameters; with them as many again at most, as a rule.
  const size_t least = works_.size() + num_messages;
  program_.instructions.reserve(in_.ledger == nullptr ? least : 2 * least);
  program_.values.reserve(program_.values.size() + 2 * works_.size() + num_messages);
  if (in_.step->has_update) {
    Emit({.op = Op::kCountLossTokens, .groups = {kScalarShardGroup, kScalarReplicateGroup}});
  }
  for (size_t i = 0; i < works_.size(); ++i) TRAINCTL_RETURN_IF_ERROR(BuildWork(i));
  if (in_.step->has_update) BuildUpdate();
  return absl::OkStatus();
}

template <typename... Args>
absl::Status ProgramBuilder::Fail(const Work& work, const Args&... reason) const {
  // Where several blocks are a stage, the block says more than the pass.
  return BadDataError(absl::StrCat(
      "pipeline schedule ", in_.step->order, ": rank ", class_, ", action ", work.action, " (",
      Describe({.op = work.op, .block = work.block, .micro_batch = work.micro_batch}), ") ", reason...));
}

// ---- messages -----------------------------------------------------------------------------------------

int ProgramBuilder::StreamTo(bool send, int peer) {
  if (send && in_.sends_on_compute) return kComputeStream;
  const absl::string_view kind = send ? "send to " : "receive from ";
  for (size_t s = kNumDataStreams; s < program_.streams.size(); ++s) {
    const Stream& stream = program_.streams[s];
    if (stream.peer == peer && stream.sends == send) return static_cast<int>(s);
  }
  program_.streams.push_back({absl::StrCat(kind, peer), peer, send});
  return static_cast<int>(program_.streams.size()) - 1;
}

// Receives `wanted`, and what was sent on the same channel before it.
absl::Status ProgramBuilder::Receive(const Message& wanted, int from) {
  const int id = in_.order->FindChannel(from, class_);
  const auto place = [this](const Message& message) -> int& {
    Held& held = At(message.block, message.micro_batch);
    return message.is_gradient ? held.gradient : held.hidden;
  };
  while (place(wanted) < 0) {
    const std::vector<Message>* messages =
        id < 0 ? nullptr : &in_.order->channels[static_cast<size_t>(id)].messages;
    if (messages == nullptr || num_received_[static_cast<size_t>(id)] == messages->size()) {
      return BadDataError(absl::StrCat("waits for ", wanted.is_gradient ? "a gradient" : "an activation",
                                       " that rank ", from, " does not send (again)"));
    }
    const Message& message = (*messages)[num_received_[static_cast<size_t>(id)]++];
    int& value = place(message);
    if (value >= 0) {
      return BadDataError(absl::StrCat("would receive ", message.is_gradient ? "a gradient" : "an activation",
                                       " for block ", message.block, ", micro-batch ", message.micro_batch,
                                       " twice"));
    }
    value = AddValue({.kind = message.is_gradient ? ValueKind::kHiddenGradient : ValueKind::kHidden,
                      .block = message.block,
                      .micro_batch = message.micro_batch,
                      .bytes = message.is_gradient ? in_.blocks->hidden_gradient_bytes
                                                   : MemoryOf(message.block - 1).output_bytes});
    Instruction receive{.op = Op::kReceive,
                        .stream = StreamTo(/*send=*/false, from),
                        .block = message.block,
                        .micro_batch = message.micro_batch,
                        .peer = from};
    // Posted while the work before is under way, not earlier: what waits to be used takes memory.
    if (compute_before_ >= 0) receive.waits.push_back(compute_before_);
    receive.writes.push_back(value);
    receive_of_value_.resize(static_cast<size_t>(value) + 1, -1);
    receive_of_value_.back() = Emit(std::move(receive));
  }
  return absl::OkStatus();
}

// The first reader of a message waits for it; the others come after that one.
void ProgramBuilder::WaitForMessage(int value, Instruction& instruction) {
  if (static_cast<size_t>(value) >= receive_of_value_.size()) return;
  int& receive = receive_of_value_[static_cast<size_t>(value)];
  if (receive >= 0) instruction.waits.push_back(std::exchange(receive, -1));
}

// Sends what `work` made, if it is for another class. A joined work's goes with that of its partner.
void ProgramBuilder::SendAfter(const Work& work, int index) {
  Message message;
  const int to = ConsumerOf(*in_.step, class_, work, message);
  if (to >= 0) pending_sends_.push_back({to, message, index});
  if (work.joined) return;
  for (const PendingSend& pending : pending_sends_) {
    Held& held = At(pending.message.block, pending.message.micro_batch);
    int& value = pending.message.is_gradient ? held.gradient : held.hidden;
    Instruction send{.op = Op::kSend,
                     .stream = StreamTo(/*send=*/true, pending.to),
                     .block = pending.message.block,
                     .micro_batch = pending.message.micro_batch,
                     .peer = pending.to};
    if (send.stream != kComputeStream) send.waits.push_back(pending.maker);
    ReadAndFree(value, send);
    Emit(std::move(send));
  }
  pending_sends_.clear();
}

// ---- instructions -------------------------------------------------------------------------------------

int ProgramBuilder::Emit(Instruction&& instruction) {
  program_.instructions.push_back(std::move(instruction));
  return static_cast<int>(program_.instructions.size()) - 1;
}

int ProgramBuilder::EmitCompute(Instruction&& instruction) {
  const int index = Emit(std::move(instruction));
  compute_before_ = last_compute_;
  last_compute_ = index;
  for (int slot : program_.instructions.back().parameter_slots) {
    for (std::vector<ParameterSlot>& pool : parameter_pool_) {
      for (ParameterSlot& state : pool) {
        if (slot >= 0 && state.slot == slot) state.last_user = index;
      }
    }
  }
  return index;
}

absl::Status ProgramBuilder::BuildWork(size_t index) {
  const Work& work = works_[index];
  Instruction instruction{
      .op = work.op, .block = work.block, .micro_batch = work.micro_batch, .joined = work.joined};
  switch (work.op) {
    case Op::kForward:
      TRAINCTL_RETURN_IF_ERROR(BuildForward(work, instruction));
      break;
    case Op::kRecompute:
      TRAINCTL_RETURN_IF_ERROR(BuildRecompute(work, instruction));
      break;
    case Op::kLoss:
    case Op::kLossAndGradient:
      TRAINCTL_RETURN_IF_ERROR(BuildLoss(work, instruction));
      break;
    case Op::kBackwardWeight:
      TRAINCTL_RETURN_IF_ERROR(BuildBackwardWeight(work, instruction));
      break;
    default:
      TRAINCTL_RETURN_IF_ERROR(BuildBackward(work, instruction));
  }
  // Weight gradients are each rank's own.
  if (const int tensor = GroupOf(layout::Axis::kTp); tensor >= 0 && work.op != Op::kBackwardWeight)
    instruction.groups.push_back(tensor);
  const int emitted = EmitCompute(std::move(instruction));
  SendAfter(work, emitted);
  ReduceAfter(index, emitted);
  return absl::OkStatus();
}

void ProgramBuilder::ReadAndFree(int& value, Instruction& instruction) {
  instruction.reads.push_back(value);
  instruction.frees.push_back(value);
  value = -1;
}

// The input of the block is there; the embedding's are tokens.
absl::Status ProgramBuilder::NeedHidden(const Work& work, Instruction& instruction) {
  if (work.block == 0) return absl::OkStatus();
  int& hidden = At(work.block, work.micro_batch).hidden;
  if (hidden < 0) {
    const int from = in_.step->ClassOf(work.block - 1, work.micro_batch);
    if (from == class_) return Fail(work, "runs before the pass of this rank that makes its input");
    const absl::Status received = Receive({false, work.block, work.micro_batch}, from);
    if (!received.ok()) return Fail(work, received.message());
  }
  TRAINCTL_CHECK(hidden >= 0);
  WaitForMessage(hidden, instruction);
  return absl::OkStatus();
}

absl::Status ProgramBuilder::NeedOutputGradient(const Work& work, Instruction& instruction) {
  const int next = work.block + 1;
  if (next == in_.step->num_blocks()) return absl::OkStatus();
  int& gradient = At(next, work.micro_batch).gradient;
  if (gradient < 0) {
    const int from = in_.step->ClassOf(next, work.micro_batch);
    if (from == class_) return Fail(work, "runs before the pass of this rank that makes its gradient");
    const absl::Status received = Receive({true, next, work.micro_batch}, from);
    if (!received.ok()) return Fail(work, received.message());
  }
  WaitForMessage(gradient, instruction);
  return absl::OkStatus();
}

absl::Status ProgramBuilder::BuildForward(const Work& work, Instruction& instruction) {
  const model::SegmentMemory& memory = MemoryOf(work.block);
  const bool forward_only = !in_.step->trains;
  if (At(work.block, work.micro_batch).forward) return Fail(work, "runs again before its backward");
  instruction.keep = !forward_only && !in_.blocks->IsRecomputed(work.block);
  TRAINCTL_RETURN_IF_ERROR(NeedHidden(work, instruction));
  NeedParameters(instruction);
  if (work.block > 0) {
    int& hidden = At(work.block, work.micro_batch).hidden;
    if (forward_only) {
      ReadAndFree(hidden, instruction);
    } else {
      instruction.reads.push_back(hidden);
    }
  }
  const int next = work.block + 1;
  if (next < in_.step->num_blocks()) {
    if (At(next, work.micro_batch).hidden >= 0) return Fail(work, "makes what the next pass still has");
    const int output = AddValue({.kind = ValueKind::kHidden,
                                 .block = next,
                                 .micro_batch = work.micro_batch,
                                 .bytes = memory.output_bytes});
    At(next, work.micro_batch).hidden = output;
    instruction.writes.push_back(output);
  }
  Held& held = At(work.block, work.micro_batch);
  held.forward = !forward_only;
  if (instruction.keep) AddSaved(work, instruction);
  instruction.peak_extra_bytes = instruction.keep ? memory.forward_peak : memory.inference_peak;
  return absl::OkStatus();
}

void ProgramBuilder::AddSaved(const Work& work, Instruction& instruction) {
  const int64_t bytes = MemoryOf(work.block).saved_bytes;
  if (bytes == 0 && in_.ledger != nullptr) return;
  int& saved = At(work.block, work.micro_batch).saved;
  saved = AddValue(
      {.kind = ValueKind::kSaved, .block = work.block, .micro_batch = work.micro_batch, .bytes = bytes});
  instruction.writes.push_back(saved);
}

absl::Status ProgramBuilder::BuildRecompute(const Work& work, Instruction& instruction) {
  const Held& held = At(work.block, work.micro_batch);
  if (!held.forward || held.hidden < 0)
    return Fail(work, "runs before its forward or after its activations are gone");
  NeedParameters(instruction);
  instruction.reads.push_back(held.hidden);
  AddSaved(work, instruction);
  instruction.peak_extra_bytes = MemoryOf(work.block).recompute_peak;
  return absl::OkStatus();
}

absl::Status ProgramBuilder::BuildLoss(const Work& work, Instruction& instruction) {
  TRAINCTL_RETURN_IF_ERROR(NeedHidden(work, instruction));
  NeedParameters(instruction);
  NeedGradients(instruction);
  if (work.block > 0) ReadAndFree(At(work.block, work.micro_batch).hidden, instruction);
  const model::SegmentMemory& memory = MemoryOf(work.block);
  if (work.op == Op::kLoss) {
    instruction.keep = false;
    instruction.peak_extra_bytes = memory.inference_peak;
  } else {
    WriteInputGradient(work, instruction);
    instruction.peak_extra_bytes = memory.loss_peak;
  }
  return absl::OkStatus();
}

// The gradient of a block's input. It usually takes over the storage of the gradient before it, which is
// freed by the same instruction, so that the sum comes out right.
void ProgramBuilder::WriteInputGradient(const Work& work, Instruction& instruction) {
  if (work.block == 0) return;
  int& gradient = At(work.block, work.micro_batch).gradient;
  gradient = AddValue({.kind = ValueKind::kHiddenGradient,
                       .block = work.block,
                       .micro_batch = work.micro_batch,
                       .bytes = in_.blocks->hidden_gradient_bytes});
  instruction.writes.push_back(gradient);
}

absl::Status ProgramBuilder::BuildBackward(const Work& work, Instruction& instruction) {
  if (!At(work.block, work.micro_batch).forward)
    return Fail(work, "runs before its forward or after its activations are gone");
  TRAINCTL_RETURN_IF_ERROR(NeedOutputGradient(work, instruction));
  NeedParameters(instruction);
  NeedGradients(instruction);
  const int next = work.block + 1;
  if (next < in_.step->num_blocks()) ReadAndFree(At(next, work.micro_batch).gradient, instruction);
  Held& held = At(work.block, work.micro_batch);
  held.forward = false;
  if (work.block > 0) ReadAndFree(held.hidden, instruction);
  WriteInputGradient(work, instruction);
  if (held.saved >= 0) ReadAndFree(held.saved, instruction);
  const model::SegmentMemory& memory = MemoryOf(work.block);
  instruction.peak_extra_bytes = memory.backward_peak;
  if (work.op != Op::kBackwardInput) return absl::OkStatus();
  instruction.peak_extra_bytes = memory.input_backward_peak;
  held.queued = AddValue({.kind = ValueKind::kQueued,
                          .block = work.block,
                          .micro_batch = work.micro_batch,
                          .bytes = memory.queued_bytes});
  instruction.writes.push_back(held.queued);
  return absl::OkStatus();
}

absl::Status ProgramBuilder::BuildBackwardWeight(const Work& work, Instruction& instruction) {
  int& queued = At(work.block, work.micro_batch).queued;
  if (queued < 0) return Fail(work, "runs before its input gradient or a second time");
  NeedGradients(instruction);
  ReadAndFree(queued, instruction);
  instruction.peak_extra_bytes = MemoryOf(work.block).weight_backward_peak;
  return absl::OkStatus();
}

// The one over an axis on the compute stream; -1: none.
int ProgramBuilder::GroupOf(layout::Axis axis) const {
  for (size_t g = kNumDataGroups; g < in_.step->groups.size(); ++g) {
    const Group& group = in_.step->groups[g];
    if (group.axis == axis && group.stream == kComputeStream) return static_cast<int>(g);
  }
  return -1;
}

void ProgramBuilder::BuildUpdate() {
  for (int bucket : own_buckets_) {
    const Ids& groups = in_.copy_groups_of_bucket->at(static_cast<size_t>(bucket));
    if (groups.empty()) continue;
    last_reduce_ = Emit({.op = Op::kSumCopies, .stream = kReduceStream, .bucket = bucket, .groups = groups});
  }
  Instruction loss{.op = Op::kReduceLoss, .groups = {kScalarShardGroup, kScalarReplicateGroup}};
  // Streams keep list order, so the last reduction stands for all of them.
  Instruction norm{.op = Op::kGradNorm, .waits = {last_reduce_}, .groups = {kScalarShardGroup}};
  if (const int pipeline = GroupOf(layout::Axis::kPp); pipeline >= 0) {
    loss.groups.push_back(pipeline);
    norm.groups.push_back(pipeline);
  }
  if (const int tensor = GroupOf(layout::Axis::kTp); tensor >= 0) norm.groups.push_back(tensor);
  Emit(std::move(loss));
  Emit(std::move(norm));
  for (int bucket : own_buckets_) {
    const int update = Emit({.op = Op::kOptimizerStep, .bucket = bucket});
    if (in_.ledger->optimizer_sharded() && !in_.ledger->parameters_sharded()) {
      Emit({.op = Op::kGatherUpdated,
            .stream = kGatherStream,
            .bucket = bucket,
            .waits = {update},
            .groups = {kGatherShardGroup}});
    }
  }
}

}  // namespace trainctl::schedule
