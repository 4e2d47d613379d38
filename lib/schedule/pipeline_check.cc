// The proof of a lowered pipeline schedule: see CheckPipeline in pipeline_lowered.h. The lists are
// executed on labels instead of tensors: storage and messages carry what they hold.
//
// One execution is enough. Ranks share nothing but channels with one sender and one receiver each,
// and a receive blocks, so what every rank computes does not depend on their speed, and a deadlock
// of one interleaving is a deadlock of all.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "schedule/pipeline_lowered.h"

namespace trainctl::schedule {
namespace {

bool IsPass(PipelineOp op) { return op <= PipelineOp::kBackwardWeight; }
bool IsSend(PipelineOp op) { return op == PipelineOp::kSendActivation || op == PipelineOp::kSendGradient; }
bool IsReceive(PipelineOp op) { return op == PipelineOp::kRecvActivation || op == PipelineOp::kRecvGradient; }
// Works on a gradient of an activation, as opposed to the activation itself.
bool OnGradient(PipelineOp op) {
  return op == PipelineOp::kBackward || op == PipelineOp::kBackwardInput || op == PipelineOp::kSendGradient ||
         op == PipelineOp::kRecvGradient;
}

// The tensor between `border` and the stage before it, or its gradient.
struct Label {
  int border = -1;  // -1: nothing
  int micro_batch = 0;
  bool gradient = false;
  bool operator==(const Label&) const = default;
  bool empty() const { return border < 0; }
};

struct Slot {
  int stage = -1;  // -1: nothing
  int micro_batch = 0;
};

struct Channel {
  int from = 0;
  int to = 0;
  std::vector<Label> sent;
  size_t num_received = 0;
  bool receiver_waits = false;
};

struct Rank {
  std::vector<Slot> slots;
  std::vector<Label> buffers;
  int live_slots = 0;
  int live_buffers = 0;
  int peak_slots = 0;
  int peak_buffers = 0;
  size_t next = 0;
  int freed_later = -1;                      // buffer of a joined forward, free after the next instruction
  std::vector<std::pair<int, int>> out, in;  // (peer, channel)
};

std::string Name(const Label& label) {
  if (label.empty()) return "nothing";
  return absl::StrCat(label.gradient ? "the gradient" : "the activation", " between stages ",
                      label.border - 1, " and ", label.border, " of micro-batch ", label.micro_batch);
}

class PipelineChecker {
 public:
  explicit PipelineChecker(const LoweredPipeline& lowered)
      : lowered_(lowered), place_(lowered.placement), ranks_(lowered.instructions.size()) {}

  absl::StatusOr<PipelineProof> Run() {
    TRAINCTL_RETURN_IF_ERROR(CheckPlacement());
    TRAINCTL_RETURN_IF_ERROR(CheckInstructions());
    TRAINCTL_RETURN_IF_ERROR(CheckCompleteness());
    TRAINCTL_RETURN_IF_ERROR(Execute());
    TRAINCTL_RETURN_IF_ERROR(CheckEnd());
    PipelineProof proof;
    for (const auto& list : lowered_.instructions)
      proof.num_instructions += static_cast<int64_t>(list.size());
    proof.rendezvous_safe = RunsWithRendezvous();
    return proof;
  }

 private:
  using Instruction = PipelineInstruction;

  const std::vector<Instruction>& ListOf(size_t rank) const { return lowered_.instructions[rank]; }

  template <typename... Args>
  absl::Status FailWhole(const Args&... reason) const {
    return BadDataError(absl::StrCat("pipeline schedule ", lowered_.name, ": ", reason...));
  }
  template <typename... Args>
  absl::Status Fail(size_t rank, size_t index, const Args&... reason) const {
    return FailWhole("rank ", rank, ", instruction ", index, " (", Describe(ListOf(rank)[index]),
                     "): ", reason...);
  }

  // ---- what can be seen without running ---------------------------------------------------------

  absl::Status CheckPlacement() const {
    const size_t p = ranks_.size();
    if (p == 0 || place_.num_ranks != static_cast<int>(p)) return FailWhole("has lists for ", p, " ranks");
    if (place_.num_stages < 1 || place_.num_micro_batches < 1 || place_.num_copies < 1) {
      return FailWhole("has no stages, micro-batches or copies");
    }
    const size_t stages = static_cast<size_t>(place_.num_copies) * static_cast<size_t>(place_.num_stages);
    if (place_.stage_ranks.size() != stages || lowered_.num_slots.size() != p ||
        lowered_.num_buffers.size() != p) {
      return FailWhole("does not say for every stage and rank where it lies and what it stores");
    }
    for (size_t i = 0; i < stages; ++i) {
      if (place_.stage_ranks[i] < 0 || place_.stage_ranks[i] >= place_.num_ranks) {
        return FailWhole("stage ", i % static_cast<size_t>(place_.num_stages), " lies on rank ",
                         place_.stage_ranks[i], ", which does not exist");
      }
    }
    return absl::OkStatus();
  }

  // Where the tensor goes that a pass or a send of `stage` makes; -1: nowhere.
  int NextStage(const Instruction& i) const {
    if (OnGradient(i.op)) return i.stage - 1;
    return i.stage + 1 < place_.num_stages ? i.stage + 1 : -1;
  }
  // Where the tensor comes from that a pass or a receive of `stage` reads; -1: from nowhere.
  int PreviousStage(const Instruction& i) const {
    if (!OnGradient(i.op)) return i.stage - 1;
    return i.stage + 1 < place_.num_stages ? i.stage + 1 : -1;
  }
  static Label Border(const Instruction& i, int other_stage) {
    return {std::max(i.stage, other_stage), i.micro_batch, OnGradient(i.op)};
  }

  absl::Status CheckInstructions() {
    for (size_t r = 0; r < ranks_.size(); ++r) {
      // A slot more than there are passes cannot be in use.
      const size_t most = ListOf(r).size();
      for (int count : {lowered_.num_slots[r], lowered_.num_buffers[r]}) {
        if (count < 0 || static_cast<size_t>(count) > most) {
          return FailWhole("rank ", r, " declares ", count, " places for the tensors of ", most,
                           " instructions");
        }
      }
      ranks_[r].slots.resize(static_cast<size_t>(lowered_.num_slots[r]));
      ranks_[r].buffers.resize(static_cast<size_t>(lowered_.num_buffers[r]));
      for (const Instruction& i : ListOf(r)) {
        if (static_cast<size_t>(i.op) >= static_cast<size_t>(kNumPipelineOps)) {
          return FailWhole("rank ", r, " has an unknown instruction");
        }
      }
      for (size_t i = 0; i < most; ++i) TRAINCTL_RETURN_IF_ERROR(CheckInstruction(r, i));
    }
    return absl::OkStatus();
  }

  absl::Status CheckInstruction(size_t r, size_t index) {
    const Instruction& i = ListOf(r)[index];
    if (i.stage < 0 || i.stage >= place_.num_stages || i.micro_batch < 0 ||
        i.micro_batch >= place_.num_micro_batches) {
      return Fail(r, index, "is outside of ", place_.num_stages, " stages and ", place_.num_micro_batches,
                  " micro-batches");
    }
    const int rank = static_cast<int>(r);
    const int home = place_.RankOf(i.stage, i.micro_batch);
    if (home != rank) return Fail(r, index, "belongs on rank ", home);
    const bool weight = i.op == PipelineOp::kBackwardWeight;
    const bool reads = IsSend(i.op) || (IsPass(i.op) && !weight && PreviousStage(i) >= 0);
    const bool writes = IsReceive(i.op) || (IsPass(i.op) && !weight && NextStage(i) >= 0);
    const auto fits = [](int place, bool wanted, size_t count) {
      return wanted ? place >= 0 && static_cast<size_t>(place) < count : place == -1;
    };
    if (!fits(i.reads, reads, ranks_[r].buffers.size())) return Fail(r, index, "reads buffer ", i.reads);
    if (!fits(i.writes, writes, ranks_[r].buffers.size())) return Fail(r, index, "writes buffer ", i.writes);
    if (!fits(i.slot, IsPass(i.op), ranks_[r].slots.size())) return Fail(r, index, "has slot ", i.slot);
    if (i.frees_read && !reads) return Fail(r, index, "frees a buffer but reads none");
    if (i.frees_slot && !weight && i.op != PipelineOp::kBackward) {
      return Fail(r, index, "frees activations that are still needed");
    }
    if (i.joined) TRAINCTL_RETURN_IF_ERROR(CheckJoined(r, index));
    return IsPass(i.op) ? CheckNoPeer(r, index) : CheckPeer(r, index);
  }

  absl::Status CheckJoined(size_t r, size_t index) const {
    const std::vector<Instruction>& list = ListOf(r);
    if (list[index].op != PipelineOp::kForward || index + 1 == list.size()) {
      return Fail(r, index, "is joined, but not a forward before a backward");
    }
    const Instruction& next = list[index + 1];
    if (next.op != PipelineOp::kBackward && next.op != PipelineOp::kBackwardInput) {
      return Fail(r, index, "is joined with a ", PipelineOpName(next.op), ", which is no backward");
    }
    if (next.stage == list[index].stage && next.micro_batch == list[index].micro_batch) {
      return Fail(r, index, "is joined with its own backward, which has to wait for it");
    }
    return absl::OkStatus();
  }

  absl::Status CheckNoPeer(size_t r, size_t index) const {
    const Instruction& i = ListOf(r)[index];
    return i.peer == -1 ? absl::OkStatus() : Fail(r, index, "names rank ", i.peer, " as its peer");
  }

  absl::Status CheckPeer(size_t r, size_t index) {
    const Instruction& i = ListOf(r)[index];
    const int other = IsSend(i.op) ? NextStage(i) : PreviousStage(i);
    if (other < 0) return Fail(r, index, "has no stage at its other end");
    const int peer = place_.RankOf(other, i.micro_batch);
    if (peer == static_cast<int>(r)) return Fail(r, index, "goes to its own rank");
    if (peer != i.peer) return Fail(r, index, "names rank ", i.peer, " instead of ", peer);
    if (IsSend(i.op)) {
      FindChannel(static_cast<int>(r), peer);
    } else {
      FindChannel(peer, static_cast<int>(r));
    }
    return absl::OkStatus();
  }

  static int Find(const std::vector<std::pair<int, int>>& channels, int peer) {
    for (const auto& [other, id] : channels) {
      if (other == peer) return id;
    }
    return -1;
  }

  // Both ends know a channel from the first instruction on that needs it.
  void FindChannel(int from, int to) {
    std::vector<std::pair<int, int>>& out = ranks_[static_cast<size_t>(from)].out;
    if (Find(out, to) >= 0) return;
    const int id = static_cast<int>(channels_.size());
    channels_.push_back({from, to, {}, 0, false});
    out.emplace_back(to, id);
    ranks_[static_cast<size_t>(to)].in.emplace_back(from, id);
  }

  // Every stage and micro-batch forward once and backward once.
  absl::Status CheckCompleteness() {
    const size_t m = static_cast<size_t>(place_.num_micro_batches);
    done_.assign(static_cast<size_t>(place_.num_stages) * m, 0);
    for (size_t r = 0; r < ranks_.size(); ++r) {
      for (size_t index = 0; index < ListOf(r).size(); ++index) {
        const Instruction& i = ListOf(r)[index];
        if (!IsPass(i.op)) continue;
        uint8_t& done = done_[Index(i)];
        const uint8_t bit = Bit(i.op);
        if (done & bit) return Fail(r, index, "runs a second time");
        done = static_cast<uint8_t>(done | bit);
      }
    }
    const uint8_t whole = Bit(PipelineOp::kForward) | Bit(PipelineOp::kBackward);
    const uint8_t split =
        Bit(PipelineOp::kForward) | Bit(PipelineOp::kBackwardInput) | Bit(PipelineOp::kBackwardWeight);
    for (size_t at = 0; at < done_.size(); ++at) {
      if (done_[at] == whole || done_[at] == split) continue;
      std::string missing = (done_[at] & Bit(PipelineOp::kForward)) == 0 ? "no forward"
                            : (done_[at] & ~Bit(PipelineOp::kForward)) == 0
                                ? "no backward"
                                : "neither one whole backward nor one input and one weight backward";
      return FailWhole("stage ", at / m, ", micro-batch ", at % m, " has ", missing);
    }
    done_.assign(done_.size(), 0);
    return absl::OkStatus();
  }

  static uint8_t Bit(PipelineOp op) { return static_cast<uint8_t>(1u << static_cast<unsigned>(op)); }
  size_t Index(const Instruction& i) const {
    return static_cast<size_t>(i.stage) * static_cast<size_t>(place_.num_micro_batches) +
           static_cast<size_t>(i.micro_batch);
  }

  // ---- the execution ------------------------------------------------------------------------------

  absl::Status Execute() {
    std::vector<size_t> ready(ranks_.size());
    for (size_t r = 0; r < ready.size(); ++r) ready[r] = ready.size() - 1 - r;
    while (!ready.empty()) {
      const size_t r = ready.back();
      ready.pop_back();
      Rank& rank = ranks_[r];
      for (; rank.next < ListOf(r).size(); ++rank.next) {
        const Instruction& i = ListOf(r)[rank.next];
        if (IsReceive(i.op)) {
          Channel& channel = channels_[static_cast<size_t>(Find(rank.in, i.peer))];
          if (channel.num_received == channel.sent.size()) {
            channel.receiver_waits = true;
            break;
          }
        }
        TRAINCTL_RETURN_IF_ERROR(ExecuteOne(r, rank.next, ready));
      }
    }
    return absl::OkStatus();
  }

  absl::Status ExecuteOne(size_t r, size_t index, std::vector<size_t>& ready) {
    const Instruction& i = ListOf(r)[index];
    Rank& rank = ranks_[r];
    if (IsPass(i.op)) TRAINCTL_RETURN_IF_ERROR(UseSlot(r, index));
    Label read;
    if (i.reads >= 0) {
      read = rank.buffers[static_cast<size_t>(i.reads)];
      const Label wanted = Border(i, IsSend(i.op) ? NextStage(i) : PreviousStage(i));
      if (read != wanted) return Fail(r, index, "reads ", Name(read), " instead of ", Name(wanted));
    }
    if (i.writes >= 0) {
      Label& buffer = rank.buffers[static_cast<size_t>(i.writes)];
      if (!buffer.empty()) return Fail(r, index, "overwrites ", Name(buffer), " in buffer ", i.writes);
      buffer = Border(i, IsReceive(i.op) ? PreviousStage(i) : NextStage(i));
      rank.peak_buffers = std::max(rank.peak_buffers, ++rank.live_buffers);
    }
    if (IsReceive(i.op)) {
      Channel& channel = channels_[static_cast<size_t>(Find(rank.in, i.peer))];
      const Label& message = channel.sent[channel.num_received++];
      const Label& wanted = rank.buffers[static_cast<size_t>(i.writes)];
      if (message != wanted) return Fail(r, index, "gets ", Name(message), ", which was sent before");
    }
    if (IsSend(i.op)) {
      Channel& channel = channels_[static_cast<size_t>(Find(rank.out, i.peer))];
      channel.sent.push_back(read);
      if (channel.receiver_waits) ready.push_back(static_cast<size_t>(channel.to));
      channel.receiver_waits = false;
    }
    const int free_now = rank.freed_later;
    rank.freed_later = -1;
    if (free_now >= 0) Free(rank, free_now);
    if (i.frees_read && i.joined) {
      rank.freed_later = i.reads;
    } else if (i.frees_read) {
      Free(rank, i.reads);
    }
    return absl::OkStatus();
  }

  static void Free(Rank& rank, int buffer) {
    rank.buffers[static_cast<size_t>(buffer)] = {};
    --rank.live_buffers;
  }

  absl::Status UseSlot(size_t r, size_t index) {
    const Instruction& i = ListOf(r)[index];
    Rank& rank = ranks_[r];
    Slot& slot = rank.slots[static_cast<size_t>(i.slot)];
    if (i.op == PipelineOp::kForward) {
      if (slot.stage >= 0) {
        return Fail(r, index, "overwrites the activations of stage ", slot.stage, ", micro-batch ",
                    slot.micro_batch, " in slot ", i.slot);
      }
      slot = {i.stage, i.micro_batch};
      rank.peak_slots = std::max(rank.peak_slots, ++rank.live_slots);
    }
    if (slot.stage != i.stage || slot.micro_batch != i.micro_batch) {
      if (slot.stage < 0) return Fail(r, index, "slot ", i.slot, " holds nothing");
      return Fail(r, index, "slot ", i.slot, " holds stage ", slot.stage, ", micro-batch ", slot.micro_batch);
    }
    uint8_t& done = done_[Index(i)];
    if (i.op == PipelineOp::kBackwardWeight && (done & Bit(PipelineOp::kBackwardInput)) == 0) {
      return Fail(r, index, "runs before the input backward");
    }
    done = static_cast<uint8_t>(done | Bit(i.op));
    if (i.frees_slot) {
      slot = {};
      --rank.live_slots;
    }
    return absl::OkStatus();
  }

  absl::Status CheckEnd() const {
    for (size_t r = 0; r < ranks_.size(); ++r) {
      if (ranks_[r].next < ListOf(r).size()) {
        return Fail(r, ranks_[r].next, "waits for ever: rank ", ListOf(r)[ranks_[r].next].peer,
                    " never sends it");
      }
    }
    for (const Channel& channel : channels_) {
      if (channel.num_received < channel.sent.size()) {
        return FailWhole("rank ", channel.to, " never receives ", Name(channel.sent[channel.num_received]),
                         " from rank ", channel.from);
      }
    }
    for (size_t r = 0; r < ranks_.size(); ++r) {
      const Rank& rank = ranks_[r];
      for (const Slot& slot : rank.slots) {
        if (slot.stage >= 0) {
          return FailWhole("rank ", r, " never frees the activations of stage ", slot.stage, ", micro-batch ",
                           slot.micro_batch);
        }
      }
      for (const Label& buffer : rank.buffers) {
        if (!buffer.empty()) return FailWhole("rank ", r, " never frees ", Name(buffer));
      }
      if (rank.peak_slots != lowered_.num_slots[r] || rank.peak_buffers != lowered_.num_buffers[r]) {
        return FailWhole("rank ", r, " declares ", lowered_.num_slots[r], " slots and ",
                         lowered_.num_buffers[r], " buffers but uses ", rank.peak_slots, " and ",
                         rank.peak_buffers, " at once");
      }
    }
    return absl::OkStatus();
  }

  // ---- sends that wait for their receive ----------------------------------------------------------

  bool RunsWithRendezvous() const {
    std::vector<size_t> next(ranks_.size(), 0);
    std::vector<size_t> ready(ranks_.size());
    for (size_t r = 0; r < ready.size(); ++r) ready[r] = r;
    while (!ready.empty()) {
      const size_t r = ready.back();
      ready.pop_back();
      while (true) {
        while (next[r] < ListOf(r).size() && IsPass(ListOf(r)[next[r]].op)) ++next[r];
        if (next[r] == ListOf(r).size()) break;
        const Instruction& mine = ListOf(r)[next[r]];
        const size_t peer = static_cast<size_t>(mine.peer);
        while (next[peer] < ListOf(peer).size() && IsPass(ListOf(peer)[next[peer]].op)) ++next[peer];
        if (next[peer] == ListOf(peer).size()) break;
        const Instruction& theirs = ListOf(peer)[next[peer]];
        if (theirs.peer != static_cast<int>(r) || IsSend(theirs.op) == IsSend(mine.op)) break;
        ++next[r];
        ++next[peer];
        ready.push_back(peer);  // may match a third one that looked at it in vain
      }
    }
    for (size_t r = 0; r < ranks_.size(); ++r) {
      for (size_t i = next[r]; i < ListOf(r).size(); ++i) {
        if (!IsPass(ListOf(r)[i].op)) return false;
      }
    }
    return true;
  }

  const LoweredPipeline& lowered_;
  const PipelinePlacement& place_;
  std::vector<Rank> ranks_;
  std::vector<Channel> channels_;
  std::vector<uint8_t> done_;  // [stage, micro-batch]: bits by PipelineOp
};

}  // namespace

absl::StatusOr<PipelineProof> CheckPipeline(const LoweredPipeline& lowered) {
  return PipelineChecker(lowered).Run();
}

}  // namespace trainctl::schedule
