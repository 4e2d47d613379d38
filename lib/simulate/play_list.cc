#include "simulate/play_list.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/status.h"

namespace trainctl::simulate {
namespace {

using schedule::Instruction;
using schedule::Op;
using Kind = PlayList::Kind;

// Lets each class go on as far as it can, as if nothing took any time.
class Maker {
 public:
  Maker(const schedule::Step& step, SecondsIndexOf index_of)
      : step_(step), index_of_(index_of), num_classes_(step.programs.size()), classes_(num_classes_) {
    size_t num_instructions = 0;
    for (size_t c = 0; c < num_classes_; ++c) {
      const schedule::Program& program = step.programs[c];
      list_.compute_streams.push_back(static_cast<uint32_t>(list_.stream_classes.size()));
      list_.stream_classes.resize(list_.stream_classes.size() + program.streams.size(),
                                  static_cast<uint32_t>(c));
      list_.num_instructions.push_back(static_cast<uint32_t>(program.instructions.size()));
      classes_[c].items.reserve(program.instructions.size());
      num_instructions += program.instructions.size();
    }
    list_.items.reserve(num_instructions);
    list_.waits.reserve(2 * num_instructions);
    if (num_classes_ > 1) meetings_.resize(step.groups.size());
  }

  absl::StatusOr<PlayList> Run() {
    for (size_t c = num_classes_; c-- > 0;) ready_.push_back(c);
    while (!ready_.empty()) {
      const size_t c = ready_.back();
      ready_.pop_back();
      RunClass(c);
    }
    for (size_t c = 0; c < num_classes_; ++c) {
      const size_t next = classes_[c].items.size();
      if (next == step_.programs[c].instructions.size()) continue;
      return InternalError(absl::StrCat("step '", step_.order, "': class ", c,
                                        " waits for ever at instruction ", next, " (",
                                        Describe(step_.programs[c].instructions[next]), ")"));
    }
    return std::move(list_);
  }

 private:
  struct Class {
    std::vector<uint32_t> items;  // by instruction
    int joined = -1;              // item: a forward that waits for the backward that it runs with
    // Of the next instruction: how many of its groups have met, and the item with which the last of them did.
    size_t num_met = 0;
    uint32_t meeting = 0;
    std::vector<std::pair<int, size_t>> out;  // (class, position in channels_); few
  };
  struct Channel {
    std::vector<uint32_t> sends;  // items
    size_t num_received = 0;
    bool receiver_waits = false;
  };
  // One meeting of the classes of a group after another.
  struct Meeting {
    std::vector<bool> is_there;      // by class: at the meeting under way
    std::vector<uint32_t> arrivals;  // likewise: items
    std::vector<uint32_t> begun;     // of those that took place: the last arrival
    std::vector<size_t> num_begun;   // by class
  };

  Channel& ChannelTo(size_t from, int to) {
    for (const auto& [peer, id] : classes_[from].out) {
      if (peer == to) return channels_[id];
    }
    classes_[from].out.emplace_back(to, channels_.size());
    return channels_.emplace_back();
  }

  void RunClass(size_t c) {
    Class& own = classes_[c];
    const std::vector<Instruction>& list = step_.programs[c].instructions;
    while (own.items.size() < list.size()) {
      const Instruction& instruction = list[own.items.size()];
      if (instruction.op == Op::kReceive) {
        if (!Receive(c, instruction)) return;
      } else {
        if (!MeetGroups(c, instruction)) return;
        Ordinary(c, instruction);
      }
    }
  }

  // An item of class `c`; its waits are what follows `from` in the list of waits.
  uint32_t Add(Kind kind, size_t c, const Instruction& instruction, uint32_t seconds_index = 0) {
    list_.items.push_back({kind, list_.compute_streams[c] + static_cast<uint32_t>(instruction.stream),
                           seconds_index, static_cast<uint32_t>(list_.waits.size())});
    return static_cast<uint32_t>(list_.items.size() - 1);
  }

  void AddWaits(const Class& own, const Instruction& instruction) {
    // Who has met has waited for more than that.
    if (own.num_met > 0) return list_.waits.push_back(own.meeting);
    for (const int wait : instruction.waits) list_.waits.push_back(own.items[static_cast<size_t>(wait)]);
  }

  bool Receive(size_t c, const Instruction& instruction) {
    Class& own = classes_[c];
    Channel& channel = ChannelTo(static_cast<size_t>(instruction.peer), static_cast<int>(c));
    if (channel.num_received == channel.sends.size()) {
      channel.receiver_waits = true;
      return false;
    }
    AddWaits(own, instruction);
    list_.waits.push_back(channel.sends[channel.num_received++]);
    own.items.push_back(Add(Kind::kReceive, c, instruction));
    return true;
  }

  void Ordinary(size_t c, const Instruction& instruction) {
    Class& own = classes_[c];
    AddWaits(own, instruction);
    own.num_met = 0;
    Kind kind = instruction.joined ? Kind::kJoined : Kind::kRun;
    if (kind == Kind::kRun && instruction.stream == schedule::kComputeStream && own.joined >= 0) {
      list_.waits.push_back(static_cast<uint32_t>(std::exchange(own.joined, -1)));
      kind = Kind::kRunJoined;
    }
    const uint32_t item = Add(kind, c, instruction, index_of_(static_cast<int>(c), instruction));
    own.items.push_back(item);
    if (kind == Kind::kJoined) own.joined = static_cast<int>(item);
    if (instruction.op == Op::kSend) Deliver(c, instruction, item);
  }

  void Deliver(size_t c, const Instruction& send, uint32_t item) {
    Channel& channel = ChannelTo(c, send.peer);
    channel.sends.push_back(item);
    if (std::exchange(channel.receiver_waits, false)) ready_.push_back(static_cast<size_t>(send.peer));
  }

  // Whether the groups of an instruction have met.
  bool MeetGroups(size_t c, const Instruction& instruction) {
    // Passes and messages, most of a step, have none: their lists are left where they lie in memory.
    if (num_classes_ == 1 || RunsBlock(instruction.op) || instruction.op == Op::kSend) return true;
    Class& own = classes_[c];
    for (size_t k = own.num_met; k < instruction.groups.size(); ++k) {
      const size_t group = static_cast<size_t>(instruction.groups[k]);
      if (step_.groups[group].classes.empty()) continue;
      if (!Meet(c, instruction, step_.groups[group].classes, meetings_[group])) return false;
      own.num_met = k + 1;
    }
    return true;
  }

  bool Meet(size_t c, const Instruction& instruction, absl::Span<const int> members, Meeting& meeting) {
    Class& own = classes_[c];
    meeting.is_there.resize(num_classes_);
    meeting.num_begun.resize(num_classes_);
    if (meeting.num_begun[c] == meeting.begun.size()) {
      if (meeting.is_there[c]) return false;
      AddWaits(own, instruction);
      const bool is_last = meeting.arrivals.size() + 1 == members.size();
      if (is_last) list_.waits.insert(list_.waits.end(), meeting.arrivals.begin(), meeting.arrivals.end());
      const uint32_t arrival = Add(Kind::kMeet, c, instruction);
      meeting.is_there[c] = true;
      meeting.arrivals.push_back(arrival);
      if (!is_last) return false;
      meeting.begun.push_back(arrival);
      meeting.arrivals.clear();
      meeting.is_there.assign(num_classes_, false);
      for (int member : members) {
        if (static_cast<size_t>(member) != c) ready_.push_back(static_cast<size_t>(member));
      }
    }
    own.meeting = meeting.begun[meeting.num_begun[c]++];
    return true;
  }

  const schedule::Step& step_;
  const SecondsIndexOf index_of_;
  const size_t num_classes_;
  PlayList list_;
  std::vector<Class> classes_;
  std::vector<Channel> channels_;
  std::vector<Meeting> meetings_;  // by group
  std::vector<size_t> ready_;      // classes that may go on
};

}  // namespace

absl::StatusOr<PlayList> MakePlayList(const schedule::Step& step, SecondsIndexOf index_of) {
  return Maker(step, index_of).Run();
}

}  // namespace trainctl::simulate
