// From actions to instructions: see pipeline_lowered.h.

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "schedule/pipeline_lowered.h"

namespace trainctl::schedule {
namespace {

// Indices of storage, reused last in, first out.
class IndexPool {
 public:
  int Take() {
    if (free_.empty()) return count_++;
    const int index = free_.back();
    free_.pop_back();
    return index;
  }
  void Give(int index) { free_.push_back(index); }
  int count() const { return count_; }

 private:
  std::vector<int> free_;
  int count_ = 0;
};

class Lowering {
 public:
  explicit Lowering(const PipelineSchedule& schedule)
      : schedule_(schedule), place_(schedule.placement), micro_batches_(place_.num_micro_batches) {}

  absl::StatusOr<LoweredPipeline> Run() {
    lowered_.name = schedule_.name;
    lowered_.placement = place_;
    TRAINCTL_RETURN_IF_ERROR(CheckShape());
    FindChannels();
    TRAINCTL_RETURN_IF_ERROR(CollectMessages());
    const size_t passes = Passes();
    slot_.assign(passes, -1);
    input_.assign(passes, -1);
    gradient_.assign(passes, -1);
    for (rank_ = 0; rank_ < place_.num_ranks; ++rank_) TRAINCTL_RETURN_IF_ERROR(LowerRank());
    return std::move(lowered_);
  }

 private:
  // A tensor on its way to the pass (`stage`, `micro_batch`) of another rank.
  struct Message {
    bool gradient = false;
    int stage = 0;
    int micro_batch = 0;
  };
  struct Channel {  // from one rank to another
    int from = 0;
    std::vector<Message> messages;
    size_t num_received = 0;
  };

  size_t Passes() const {
    return static_cast<size_t>(place_.num_stages) * static_cast<size_t>(micro_batches_);
  }
  size_t At(int stage, int micro_batch) const {
    return static_cast<size_t>(stage) * static_cast<size_t>(micro_batches_) +
           static_cast<size_t>(micro_batch);
  }
  size_t ChannelAt(bool gradient, int stage, int micro_batch) const {
    const size_t copy = static_cast<size_t>(place_.CopyOf(micro_batch));
    return (copy * static_cast<size_t>(place_.num_stages) + static_cast<size_t>(stage)) * 2 +
           (gradient ? 1 : 0);
  }

  template <typename... Args>
  absl::Status Fail(int rank, size_t index, const Args&... reason) const {
    const PipelineAction& action = schedule_.actions[static_cast<size_t>(rank)][index];
    return BadDataError(absl::StrCat("pipeline schedule ", schedule_.name, ": rank ", rank, ", action ",
                                     index, " (", DescribePass(action.op, action.stage, action.micro_batch),
                                     ") ", reason...));
  }

  absl::Status CheckShape() const {
    const size_t stage_ranks =
        static_cast<size_t>(place_.num_copies) * static_cast<size_t>(place_.num_stages);
    bool in_range = place_.num_ranks >= 1 && place_.num_stages >= 1 && micro_batches_ >= 1 &&
                    place_.num_copies >= 1 && place_.stage_ranks.size() == stage_ranks &&
                    schedule_.actions.size() == static_cast<size_t>(place_.num_ranks);
    for (int rank : place_.stage_ranks) in_range = in_range && rank >= 0 && rank < place_.num_ranks;
    if (!in_range)
      return BadDataError(absl::StrCat("pipeline schedule ", schedule_.name, " has no valid placement"));
    return absl::OkStatus();
  }

  // The channel of each message into a stage; -1 where both stages are on one rank.
  void FindChannels() {
    channel_of_.assign(place_.stage_ranks.size() * 2, -1);
    absl::flat_hash_map<int64_t, int> ids;
    const auto find = [&](int from, int to) {
      if (from == to) return -1;
      const auto [found, inserted] =
          ids.try_emplace(int64_t{from} * place_.num_ranks + to, static_cast<int>(channels_.size()));
      if (inserted) channels_.push_back({from, {}, 0});
      return found->second;
    };
    for (int copy = 0; copy < place_.num_copies; ++copy) {
      const size_t base = static_cast<size_t>(copy) * static_cast<size_t>(place_.num_stages);
      for (size_t stage = 0; stage + 1 < static_cast<size_t>(place_.num_stages); ++stage) {
        const int lower = place_.stage_ranks[base + stage];
        const int upper = place_.stage_ranks[base + stage + 1];
        channel_of_[(base + stage + 1) * 2] = find(lower, upper);
        channel_of_[(base + stage) * 2 + 1] = find(upper, lower);
      }
    }
  }

  // What every rank sends, in the order of its actions.
  absl::Status CollectMessages() {
    for (int rank = 0; rank < place_.num_ranks; ++rank) {
      const std::vector<PipelineAction>& actions = schedule_.actions[static_cast<size_t>(rank)];
      for (size_t i = 0; i < actions.size(); ++i) {
        const PipelineAction& action = actions[i];
        if (action.op > PipelineOp::kBackwardWeight) return Fail(rank, i, "is not a pass");
        if (action.stage < 0 || action.stage >= place_.num_stages || action.micro_batch < 0 ||
            action.micro_batch >= micro_batches_) {
          return Fail(rank, i, "is outside of ", place_.num_stages, " stages and ", micro_batches_,
                      " micro-batches");
        }
        if (place_.RankOf(action.stage, action.micro_batch) != rank) {
          return Fail(rank, i, "belongs on rank ", place_.RankOf(action.stage, action.micro_batch));
        }
        if (action.joined && !JoinsNext(actions, i)) {
          return Fail(rank, i, "overlaps with the next action, which is no backward of another micro-batch");
        }
        const int to = Consumer(action);
        if (to < 0) continue;
        const bool gradient = action.op != PipelineOp::kForward;
        const int channel = channel_of_[ChannelAt(gradient, to, action.micro_batch)];
        if (channel >= 0) {
          channels_[static_cast<size_t>(channel)].messages.push_back({gradient, to, action.micro_batch});
        }
      }
    }
    return absl::OkStatus();
  }

  static bool JoinsNext(const std::vector<PipelineAction>& actions, size_t i) {
    if (actions[i].op != PipelineOp::kForward || i + 1 == actions.size()) return false;
    const PipelineAction& next = actions[i + 1];
    const bool backward = next.op == PipelineOp::kBackward || next.op == PipelineOp::kBackwardInput;
    return backward && (next.stage != actions[i].stage || next.micro_batch != actions[i].micro_batch);
  }

  // The stage that reads what `action` makes, or -1.
  int Consumer(const PipelineAction& action) const {
    if (action.op == PipelineOp::kForward)
      return action.stage + 1 < place_.num_stages ? action.stage + 1 : -1;
    return action.op == PipelineOp::kBackwardWeight ? -1 : action.stage - 1;
  }

  bool ReadsMessage(const PipelineAction& action) const {
    if (action.op == PipelineOp::kForward) return action.stage > 0;
    return action.op != PipelineOp::kBackwardWeight && action.stage + 1 < place_.num_stages;
  }

  absl::Status LowerRank() {
    const std::vector<PipelineAction>& actions = schedule_.actions[static_cast<size_t>(rank_)];
    out_ = &lowered_.instructions.emplace_back();
    out_->reserve(actions.size() * 3);
    slots_ = {};
    buffers_ = {};
    for (size_t i = 0; i < actions.size(); ++i) {
      const size_t count = actions[i].joined ? 2 : 1;
      for (size_t k = i; k < i + count; ++k) TRAINCTL_RETURN_IF_ERROR(Receive(k, actions[k]));
      const size_t first = out_->size();
      for (size_t k = i; k < i + count; ++k) TRAINCTL_RETURN_IF_ERROR(Compute(k, actions[k]));
      // Frees after all of them, so that nothing of a joined pair reuses what the other still reads.
      for (size_t k = first; k < first + count; ++k) {
        const PipelineInstruction& pass = (*out_)[k];
        if (pass.frees_read) buffers_.Give(pass.reads);
        if (pass.frees_slot) slots_.Give(pass.slot);
      }
      for (size_t k = i; k < i + count; ++k) Send(actions[k]);
      i += count - 1;
    }
    lowered_.num_slots.push_back(slots_.count());
    lowered_.num_buffers.push_back(buffers_.count());
    return absl::OkStatus();
  }

  // Receives what `action` reads, and what was sent on the same channel before it.
  absl::Status Receive(size_t index, const PipelineAction& action) {
    if (!ReadsMessage(action)) return absl::OkStatus();
    const bool gradient = action.op != PipelineOp::kForward;
    const size_t wanted = At(action.stage, action.micro_batch);
    const std::vector<int>& held = gradient ? gradient_ : input_;
    if (held[wanted] >= 0) return absl::OkStatus();
    const int id = channel_of_[ChannelAt(gradient, action.stage, action.micro_batch)];
    if (id < 0) return Fail(rank_, index, "runs before the pass of this rank that makes its input");
    Channel& channel = channels_[static_cast<size_t>(id)];
    while (held[wanted] < 0) {
      if (channel.num_received == channel.messages.size()) {
        return Fail(rank_, index, "waits for ", gradient ? "a gradient" : "an activation", " that rank ",
                    channel.from, " does not send (again)");
      }
      const Message& message = channel.messages[channel.num_received++];
      int& buffer = (message.gradient ? gradient_ : input_)[At(message.stage, message.micro_batch)];
      if (buffer >= 0) {
        return Fail(rank_, index, "would receive ", message.gradient ? "a gradient" : "an activation",
                    " for stage ", message.stage, ", micro-batch ", message.micro_batch, " twice");
      }
      buffer = buffers_.Take();
      PipelineInstruction& receive = out_->emplace_back();
      receive.op = message.gradient ? PipelineOp::kRecvGradient : PipelineOp::kRecvActivation;
      receive.stage = message.stage;
      receive.micro_batch = message.micro_batch;
      receive.peer = channel.from;
      receive.writes = buffer;
    }
    return absl::OkStatus();
  }

  absl::Status Compute(size_t index, const PipelineAction& action) {
    PipelineInstruction pass;
    pass.op = action.op;
    pass.joined = action.joined;
    pass.stage = action.stage;
    pass.micro_batch = action.micro_batch;
    const size_t at = At(action.stage, action.micro_batch);
    if (action.op == PipelineOp::kForward) {
      if (slot_[at] >= 0) return Fail(rank_, index, "runs again before its backward");
      slot_[at] = slots_.Take();
    }
    if (slot_[at] < 0) return Fail(rank_, index, "runs before its forward or after its activations are gone");
    pass.slot = slot_[at];
    if (action.op == PipelineOp::kBackward || action.op == PipelineOp::kBackwardWeight) {
      pass.frees_slot = true;
      slot_[at] = -1;
    }
    if (ReadsMessage(action)) {
      int& buffer = (action.op == PipelineOp::kForward ? input_ : gradient_)[at];
      pass.reads = buffer;
      pass.frees_read = true;
      buffer = -1;
    }
    const int to = Consumer(action);
    if (to >= 0) {
      pass.writes = buffers_.Take();
      const bool gradient = action.op != PipelineOp::kForward;
      if (place_.RankOf(to, action.micro_batch) == rank_) {
        int& buffer = (gradient ? gradient_ : input_)[At(to, action.micro_batch)];
        if (buffer >= 0) return Fail(rank_, index, "makes what the next pass still has");
        buffer = pass.writes;
      } else {
        sends_.push_back(pass.writes);
      }
    }
    out_->push_back(pass);
    return absl::OkStatus();
  }

  void Send(const PipelineAction& action) {
    const int to = Consumer(action);
    if (to < 0) return;
    const int peer = place_.RankOf(to, action.micro_batch);
    if (peer == rank_) return;
    PipelineInstruction& send = out_->emplace_back();
    send.op = action.op == PipelineOp::kForward ? PipelineOp::kSendActivation : PipelineOp::kSendGradient;
    send.stage = action.stage;
    send.micro_batch = action.micro_batch;
    send.peer = peer;
    send.reads = sends_.front();
    send.frees_read = true;
    sends_.erase(sends_.begin());
    buffers_.Give(send.reads);
  }

  const PipelineSchedule& schedule_;
  const PipelinePlacement& place_;
  const int micro_batches_;
  LoweredPipeline lowered_;
  std::vector<int> channel_of_;  // [(copy, consuming stage, gradient)]
  std::vector<Channel> channels_;
  std::vector<int> slot_;      // [stage, micro-batch]: activation slot, or -1
  std::vector<int> input_;     // buffer with the input of the forward, or -1
  std::vector<int> gradient_;  // buffer with the gradient of the output, or -1
  int rank_ = 0;
  std::vector<PipelineInstruction>* out_ = nullptr;
  IndexPool slots_;
  IndexPool buffers_;
  std::vector<int> sends_;  // buffers to be sent after the passes that run now; at most two
};

}  // namespace

absl::StatusOr<LoweredPipeline> LowerPipeline(const PipelineSchedule& schedule) {
  return Lowering(schedule).Run();
}

std::string Describe(const PipelineInstruction& instruction) {
  std::string text = DescribePass(instruction.op, instruction.stage, instruction.micro_batch);
  if (instruction.peer >= 0) {
    const bool send =
        instruction.op == PipelineOp::kSendActivation || instruction.op == PipelineOp::kSendGradient;
    absl::StrAppend(&text, send ? ", to rank " : ", from rank ", instruction.peer);
  }
  return text;
}

}  // namespace trainctl::schedule
