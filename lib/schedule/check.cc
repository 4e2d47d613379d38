// The proof of a step: see Check in step.h. Each program for itself (check_program.cc), then all together:
// what is sent is what is received, groups agree on their collectives, and everybody comes to an end.
//
// One execution is enough for the last. Classes share nothing but channels with one sender and one receiver
// each, where a receive waits, and collectives for which all wait; so who waits for whom does not depend on
// their speed, and a deadlock of one interleaving is a deadlock of all.

#include <algorithm>
#include <functional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "schedule/check_program.h"

namespace trainctl::schedule {
namespace {

// Runs all programs on nothing but who waits for whom.
class Progress {
 public:
  // rendezvous: a send ends when its receive has begun; else at once.
  Progress(const Step& step, bool rendezvous)
      : step_(step), rendezvous_(rendezvous), num_classes_(step.programs.size()) {
    begun_sends_.assign(num_classes_ * num_classes_, 0);
    begun_receives_.assign(num_classes_ * num_classes_, 0);
    arrived_.assign(step.groups.size() * num_classes_, 0);
    states_.resize(num_classes_);
    for (size_t c = 0; c < num_classes_; ++c) {
      const Program& program = step.programs[c];
      State& state = states_[c];
      state.done.assign(program.instructions.size(), false);
      state.streams.resize(program.streams.size());
      for (size_t i = 0; i < program.instructions.size(); ++i) {
        StreamState& stream = state.streams[static_cast<size_t>(program.instructions[i].stream)];
        stream.queue.push_back(static_cast<int>(i));
      }
    }
  }

  // Whether all come to an end.
  bool Run() {
    bool forwards = true;
    for (bool progress = true; progress; forwards = !forwards) {
      progress = false;
      for (size_t k = 0; k < num_classes_; ++k)
        progress = RunClass(forwards ? k : num_classes_ - 1 - k) || progress;
    }
    for (size_t c = 0; c < num_classes_; ++c) {
      if (FirstStuck(c) >= 0) return false;
    }
    return true;
  }

  // The earliest instruction of class `c` that never ends; -1: all do.
  int FirstStuck(size_t c) const {
    int first = -1;
    for (const StreamState& stream : states_[c].streams) {
      if (stream.next == stream.queue.size()) continue;
      const int index = stream.queue[stream.next];
      if (first < 0 || index < first) first = index;
    }
    return first;
  }

 private:
  struct StreamState {
    std::vector<int> queue;
    size_t next = 0;
    bool begun = false;  // the next one, which waits for others
  };
  struct State {
    std::vector<bool> done;
    std::vector<StreamState> streams;
  };

  bool RunClass(size_t c) {
    State& state = states_[c];
    const Program& program = step_.programs[c];
    bool any = false;
    for (bool progress = true; progress;) {
      progress = false;
      for (StreamState& stream : state.streams) {
        while (stream.next < stream.queue.size()) {
          const int index = stream.queue[stream.next];
          const Instruction& instruction = program.instructions[static_cast<size_t>(index)];
          if (!stream.begun) {
            if (!Ready(state, instruction)) break;
            Begin(c, instruction);
            stream.begun = progress = any = true;
          }
          if (!Ends(c, instruction)) break;
          stream.begun = false;
          state.done[static_cast<size_t>(index)] = true;
          ++stream.next;
          progress = any = true;
        }
      }
    }
    return any;
  }

  static bool Ready(const State& state, const Instruction& instruction) {
    return std::all_of(instruction.waits.begin(), instruction.waits.end(),
                       [&](int wait) { return state.done[static_cast<size_t>(wait)]; });
  }

  size_t ChannelAt(size_t from, int to) const { return from * num_classes_ + static_cast<size_t>(to); }
  size_t ChannelTo(int from, size_t to) const { return static_cast<size_t>(from) * num_classes_ + to; }

  void Begin(size_t c, const Instruction& instruction) {
    if (instruction.op == Op::kSend) ++begun_sends_[ChannelAt(c, instruction.peer)];
    if (instruction.op == Op::kReceive) ++begun_receives_[ChannelTo(instruction.peer, c)];
    for (int group : instruction.groups) ++arrived_[static_cast<size_t>(group) * num_classes_ + c];
  }

  // One stream serves a channel or a group, so what has begun is the one under way.
  bool Ends(size_t c, const Instruction& instruction) const {
    if (instruction.op == Op::kSend) {
      const size_t channel = ChannelAt(c, instruction.peer);
      return !rendezvous_ || begun_receives_[channel] >= begun_sends_[channel];
    }
    if (instruction.op == Op::kReceive) {
      const size_t channel = ChannelTo(instruction.peer, c);
      return begun_sends_[channel] >= begun_receives_[channel];
    }
    for (int group : instruction.groups) {
      const int* arrived = &arrived_[static_cast<size_t>(group) * num_classes_];
      for (int other : step_.groups[static_cast<size_t>(group)].classes) {
        if (arrived[other] < arrived[c]) return false;
      }
    }
    return true;
  }

  const Step& step_;
  const bool rendezvous_;
  const size_t num_classes_;
  std::vector<State> states_;
  std::vector<int> begun_sends_, begun_receives_;  // [from, to]
  std::vector<int> arrived_;                       // [group, class]
};

class StepChecker {
 public:
  StepChecker(const Step& step, const layout::Ledger* ledger) : step_(step), ledger_(ledger) {}

  absl::StatusOr<Proof> Run() {
    TRAINCTL_RETURN_IF_ERROR(CheckShape());
    Proof proof;
    for (size_t c = 0; c < step_.programs.size(); ++c) {
      TRAINCTL_RETURN_IF_ERROR(CheckProgram(step_, ledger_, static_cast<int>(c)));
      proof.num_instructions += static_cast<int64_t>(step_.programs[c].instructions.size());
    }
    TRAINCTL_RETURN_IF_ERROR(CheckMessages());
    TRAINCTL_RETURN_IF_ERROR(CheckGroups());
    proof.rendezvous_safe = Progress(step_, /*rendezvous=*/true).Run();
    if (proof.rendezvous_safe) return proof;
    Progress eager(step_, /*rendezvous=*/false);
    if (eager.Run()) return proof;
    for (size_t c = 0;; ++c) {
      const int stuck = eager.FirstStuck(c);
      if (stuck >= 0) return CheckFailure(step_, static_cast<int>(c), stuck, "waits for ever");
    }
  }

 private:
  absl::Status Fail(const std::string& reason) const { return CheckFailure(step_, -1, reason); }

  absl::Status CheckShape() const {
    const PipelinePlacement& place = step_.placement;
    const size_t num_classes = step_.programs.size();
    if (num_classes == 0 || place.num_ranks != static_cast<int>(num_classes))
      return Fail(absl::StrCat("has programs for ", num_classes, " classes"));
    if (place.num_stages < 1 || place.num_copies < 1 || step_.num_micro_batches < 1 ||
        place.num_micro_batches != step_.num_micro_batches) {
      return Fail("has no stages, micro-batches or copies");
    }
    const size_t stages = static_cast<size_t>(place.num_copies) * static_cast<size_t>(place.num_stages);
    if (place.stage_ranks.size() != stages ||
        step_.stage_begin.size() != static_cast<size_t>(place.num_stages) + 1 ||
        step_.stage_begin.front() != 0 ||
        !std::is_sorted(step_.stage_begin.begin(), step_.stage_begin.end())) {
      return Fail("does not say for every stage where it lies");
    }
    for (size_t i = 0; i < stages; ++i) {
      if (place.stage_ranks[i] < 0 || place.stage_ranks[i] >= place.num_ranks) {
        return Fail(absl::StrCat("stage ", i % static_cast<size_t>(place.num_stages), " lies on rank ",
                                 place.stage_ranks[i], ", which does not exist"));
      }
    }
    for (const Group& group : step_.groups) {
      const bool spans = group.axis == layout::Axis::kPp;
      const bool ascends = std::adjacent_find(group.classes.begin(), group.classes.end(),
                                              std::greater_equal<int>()) == group.classes.end();
      if (spans == group.classes.empty() || !ascends ||
          (spans && (group.classes.front() < 0 || group.classes.back() >= place.num_ranks))) {
        return Fail("has a group of classes that do not exist");
      }
    }
    if (ledger_ == nullptr) return absl::OkStatus();
    if (step_.zero_stage != ledger_->zero_stage()) {
      return Fail(
          absl::StrCat("built for stage ", step_.zero_stage, ", the ledger has ", ledger_->zero_stage()));
    }
    if (ledger_->num_blocks() != step_.num_blocks())
      return Fail(absl::StrCat("has ", step_.num_blocks(), " blocks, the ledger ", ledger_->num_blocks()));
    return CheckOwners();
  }

  // The ledger knows where the blocks lie.
  absl::Status CheckOwners() const {
    for (int stage = 0; stage < step_.placement.num_stages; ++stage) {
      for (int copy = 0; copy < step_.placement.num_copies; ++copy) {
        const int owner = step_.placement.HolderOf(copy, stage);
        for (int block = step_.stage_begin[static_cast<size_t>(stage)];
             block < step_.stage_begin[static_cast<size_t>(stage) + 1]; ++block) {
          for (int bucket : ledger_->buckets_of_block(block)) {
            const std::vector<int>& owners = ledger_->owners(bucket);
            if (std::find(owners.begin(), owners.end(), owner) == owners.end())
              return Fail(
                  absl::StrCat("bucket ", bucket, " does not lie on class ", owner, ", which reads it"));
          }
        }
      }
    }
    return absl::OkStatus();
  }

  struct Moved {
    int index = -1;  // instruction
    bool is_gradient = false;
    int block = 0;
    int micro_batch = 0;
  };

  // Each channel's receives name what is sent, in the order in which it is sent.
  absl::Status CheckMessages() const {
    const size_t n = step_.programs.size();
    std::vector<std::vector<Moved>> sent(n * n), received(n * n);
    for (size_t c = 0; c < n; ++c) {
      const Program& program = step_.programs[c];
      std::vector<int> stream_to(n, -1);
      for (size_t i = 0; i < program.instructions.size(); ++i) {
        const Instruction& message = program.instructions[i];
        const bool sends = message.op == Op::kSend;
        if (!sends && message.op != Op::kReceive) continue;
        const size_t peer = static_cast<size_t>(message.peer);
        const Value& value =
            program.values[static_cast<size_t>(sends ? message.reads[0] : message.writes[0])];
        (sends ? sent[c * n + peer] : received[peer * n + c])
            .push_back({static_cast<int>(i), value.kind == ValueKind::kHiddenGradient, value.block,
                        value.micro_batch});
        if (!sends) continue;
        if (stream_to[peer] >= 0 && stream_to[peer] != message.stream) {
          return CheckFailure(step_, static_cast<int>(c), static_cast<int>(i),
                              "goes on another stream than the messages before it");
        }
        stream_to[peer] = message.stream;
      }
    }
    for (size_t channel = 0; channel < n * n; ++channel) {
      const int from = static_cast<int>(channel / n), to = static_cast<int>(channel % n);
      const std::vector<Moved>&out = sent[channel], &in = received[channel];
      for (size_t k = 0; k < std::min(out.size(), in.size()); ++k) {
        if (out[k].is_gradient == in[k].is_gradient && out[k].block == in[k].block &&
            out[k].micro_batch == in[k].micro_batch)
          continue;
        return CheckFailure(
            step_, to, in[k].index,
            absl::StrCat("gets what class ", from, " sends as '", DescribeOf(from, out[k]), "'"));
      }
      if (in.size() > out.size())
        return CheckFailure(step_, to, in[out.size()].index, "waits for ever: nobody sends it");
      if (out.size() > in.size())
        return CheckFailure(step_, from, out[in.size()].index, "is received by nobody");
    }
    return absl::OkStatus();
  }

  std::string DescribeOf(int own_class, const Moved& moved) const {
    return Describe(
        step_.programs[static_cast<size_t>(own_class)].instructions[static_cast<size_t>(moved.index)]);
  }

  // Classes that share a group issue the same collectives in the same order.
  absl::Status CheckGroups() const {
    for (size_t g = 0; g < step_.groups.size(); ++g) {
      const std::vector<int>& classes = step_.groups[g].classes;
      std::vector<int> first;  // instructions of the first class
      for (size_t k = 0; k < classes.size(); ++k) {
        std::vector<int> own;
        const Program& program = step_.programs[static_cast<size_t>(classes[k])];
        for (size_t i = 0; i < program.instructions.size(); ++i) {
          const Ids& groups = program.instructions[i].groups;
          if (std::find(groups.begin(), groups.end(), static_cast<int>(g)) != groups.end())
            own.push_back(static_cast<int>(i));
        }
        if (k == 0) {
          first = own;
          continue;
        }
        TRAINCTL_RETURN_IF_ERROR(CheckSameOrder(classes[0], first, classes[k], own));
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckSameOrder(int a, const std::vector<int>& of_a, int b,
                              const std::vector<int>& of_b) const {
    for (size_t k = 0; k < std::max(of_a.size(), of_b.size()); ++k) {
      const bool a_longer = k >= of_b.size();
      if (a_longer || k >= of_a.size()) {
        return CheckFailure(step_, a_longer ? a : b, a_longer ? of_a[k] : of_b[k],
                            absl::StrCat("works with class ", a_longer ? b : a, ", which does not"));
      }
      const Instruction& x =
          step_.programs[static_cast<size_t>(a)].instructions[static_cast<size_t>(of_a[k])];
      const Instruction& y =
          step_.programs[static_cast<size_t>(b)].instructions[static_cast<size_t>(of_b[k])];
      if (x.op == y.op && x.bucket == y.bucket) continue;
      return CheckFailure(step_, b, of_b[k],
                          absl::StrCat("meets '", Describe(x), "' of class ", a, " in their group"));
    }
    return absl::OkStatus();
  }

  const Step& step_;
  const layout::Ledger* ledger_;
};

}  // namespace

absl::Status CheckFailure(const Step& step, int own_class, const std::string& reason) {
  const std::string of_class =
      own_class >= 0 && step.programs.size() > 1 ? absl::StrCat("class ", own_class, " ") : "";
  return InternalError(absl::StrCat("step '", step.order, "': ", of_class, reason));
}

absl::Status CheckFailure(const Step& step, int own_class, int instruction, const std::string& reason) {
  const std::string of_class = step.programs.size() > 1 ? absl::StrCat("class ", own_class, ", ") : "";
  const Instruction& at =
      step.programs[static_cast<size_t>(own_class)].instructions[static_cast<size_t>(instruction)];
  return InternalError(absl::StrCat("step '", step.order, "': ", of_class, "instruction ", instruction, " (",
                                    Describe(at), "): ", reason));
}

absl::StatusOr<Proof> Check(const Step& step, const layout::Ledger& ledger) {
  return StepChecker(step, &ledger).Run();
}

absl::StatusOr<Proof> Check(const Step& step) { return StepChecker(step, nullptr).Run(); }

}  // namespace trainctl::schedule
