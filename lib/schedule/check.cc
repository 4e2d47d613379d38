// The proof of a step: see Check in step.h. Each program for itself (check_program.cc), then all together:
// what is sent is what is received, groups agree on their collectives, and every rank finishes
// (check_progress.cc).

#include <algorithm>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "schedule/check_program.h"
#include "schedule/check_progress.h"

namespace trainctl::schedule {
namespace {

class StepChecker {
 public:
  StepChecker(const Step& step, const layout::Ledger* ledger, const Transport& transport)
      : step_(step), ledger_(ledger), transport_(transport) {}

  absl::StatusOr<Proof> Run() {
    TRAINCTL_RETURN_IF_ERROR(CheckShape());
    Proof proof;
    for (size_t c = 0; c < step_.programs.size(); ++c) {
      TRAINCTL_RETURN_IF_ERROR(CheckProgram(step_, ledger_, static_cast<int>(c)));
      proof.num_instructions += static_cast<int64_t>(step_.programs[c].instructions.size());
    }
    TRAINCTL_RETURN_IF_ERROR(CheckMessages());
    TRAINCTL_RETURN_IF_ERROR(CheckGroups());
    const Exchanges exchanges(step_);
    proof.min_messages_in_flight = MinMessagesInFlight(step_, exchanges);
    TRAINCTL_RETURN_IF_ERROR(CheckProgress(step_, exchanges, transport_, proof.min_messages_in_flight));
    return proof;
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
  struct Channel {
    int stream = -1;  // of the sender
    std::vector<Moved> sent, received;
  };

  // Each channel's receives name what is sent, in the order in which it is sent.
  absl::Status CheckMessages() const {
    std::map<std::pair<int, int>, Channel> channels;  // by the classes at both ends
    for (size_t c = 0; c < step_.programs.size(); ++c) {
      const Program& program = step_.programs[c];
      const int own = static_cast<int>(c);
      for (size_t i = 0; i < program.instructions.size(); ++i) {
        const Instruction& message = program.instructions[i];
        const bool sends = message.op == Op::kSend;
        if (!sends && message.op != Op::kReceive) continue;
        Channel& channel = channels[sends ? std::pair(own, message.peer) : std::pair(message.peer, own)];
        const Value& value =
            program.values[static_cast<size_t>(sends ? message.reads[0] : message.writes[0])];
        (sends ? channel.sent : channel.received)
            .push_back({static_cast<int>(i), value.kind == ValueKind::kHiddenGradient, value.block,
                        value.micro_batch});
        if (!sends) continue;
        if (channel.stream >= 0 && channel.stream != message.stream) {
          return CheckFailure(step_, own, static_cast<int>(i),
                              "goes on another stream than the messages before it");
        }
        channel.stream = message.stream;
      }
    }
    for (const auto& [ends, channel] : channels) {
      const auto [from, to] = ends;
      const std::vector<Moved>&out = channel.sent, &in = channel.received;
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
    // [group][class]: instructions.
    std::vector<std::vector<std::vector<int>>> issued(step_.groups.size());
    for (size_t g = 0; g < issued.size(); ++g) {
      if (!step_.groups[g].classes.empty()) issued[g].resize(step_.programs.size());
    }
    for (size_t c = 0; c < step_.programs.size(); ++c) {
      const std::vector<Instruction>& list = step_.programs[c].instructions;
      for (size_t i = 0; i < list.size(); ++i) {
        for (int group : list[i].groups) {
          std::vector<std::vector<int>>& by_class = issued[static_cast<size_t>(group)];
          if (!by_class.empty()) by_class[c].push_back(static_cast<int>(i));
        }
      }
    }
    for (size_t g = 0; g < issued.size(); ++g) {
      const std::vector<int>& classes = step_.groups[g].classes;
      for (size_t k = 1; k < classes.size(); ++k) {
        TRAINCTL_RETURN_IF_ERROR(CheckSameOrder(classes[0], issued[g][static_cast<size_t>(classes[0])],
                                                classes[k], issued[g][static_cast<size_t>(classes[k])]));
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
  const Transport transport_;
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

absl::StatusOr<Proof> Check(const Step& step, const layout::Ledger& ledger, const Transport& transport) {
  return StepChecker(step, &ledger, transport).Run();
}

absl::StatusOr<Proof> Check(const Step& step, const Transport& transport) {
  return StepChecker(step, nullptr, transport).Run();
}

}  // namespace trainctl::schedule
