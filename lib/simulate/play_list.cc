#include "simulate/play_list.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace trainctl::simulate {
namespace {

using schedule::Op;
using Fact = PlayProgram::Fact;
using Kind = PlayList::Kind;

// Lets each class go on as far as it can, as if nothing took any time.
class Maker {
 public:
  Maker(absl::Span<const PlayProgram> programs, absl::Span<const schedule::Group> groups)
      : programs_(programs), groups_(groups), classes_(programs.size()), meetings_(groups.size()) {
    size_t num_instructions = 0;
    size_t num_waits = 0;
    for (size_t c = 0; c < programs.size(); ++c) {
      const PlayProgram& program = programs[c];
      list_.compute_streams.push_back(static_cast<uint32_t>(list_.stream_classes.size()) +
                                      schedule::kComputeStream);
      list_.stream_classes.insert(list_.stream_classes.end(), program.num_streams, static_cast<uint32_t>(c));
      list_.num_instructions.push_back(static_cast<uint32_t>(program.facts.size()));
      classes_[c].items.reserve(program.facts.size());
      num_instructions += program.facts.size();
      num_waits += program.waits.size();
    }
    list_.items.reserve(num_instructions);
    list_.waits.reserve(num_waits + num_instructions / 2);  // with the sends of receives
  }

  absl::StatusOr<PlayList> Run(absl::string_view order) {
    for (size_t c = classes_.size(); c-- > 0;) ready_.push_back(c);
    while (!ready_.empty()) {
      const size_t c = ready_.back();
      ready_.pop_back();
      RunClass(c);
    }
    for (size_t c = 0; c < classes_.size(); ++c) {
      const size_t next = classes_[c].items.size();
      if (next == programs_[c].facts.size()) continue;
      return InternalError(absl::StrCat("step '", order, "': class ", c, " waits for ever at instruction ",
                                        next, " (", schedule::OpName(programs_[c].facts[next].op), ")"));
    }
    return std::move(list_);
  }

 private:
  struct Class {
    std::vector<uint32_t> items;  // by instruction
    uint32_t waits_begin = 0;     // of the next one
    int64_t joined = -1;          // item: a forward that waits for the backward that it runs with
    // Of the next instruction: where its groups that have not met begin, and the item of the last that has.
    uint32_t groups_met = 0;
    int64_t meeting = -1;
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
    const std::vector<Fact>& facts = programs_[c].facts;
    while (own.items.size() < facts.size()) {
      const Fact& fact = facts[own.items.size()];
      const bool goes_on = fact.op == Op::kReceive ? Receive(c, fact) : MeetGroups(c, fact);
      if (!goes_on) return;
      if (fact.op != Op::kReceive) Ordinary(c, fact);
      own.waits_begin = fact.waits_end;
      own.groups_met = fact.groups_end;
      own.meeting = -1;
    }
  }

  // Its waits are the last in the list.
  uint32_t AddItem(Kind kind, size_t c, const Fact& fact) {
    const uint32_t first_stream = list_.compute_streams[c] - schedule::kComputeStream;
    list_.items.push_back({kind, first_stream + static_cast<uint32_t>(fact.stream), fact.seconds_index,
                           static_cast<uint32_t>(list_.waits.size())});
    return static_cast<uint32_t>(list_.items.size() - 1);
  }

  void AddWaits(size_t c, const Fact& fact) {
    const Class& own = classes_[c];
    // Who has met has waited for all else.
    if (own.meeting >= 0) return list_.waits.push_back(static_cast<uint32_t>(own.meeting));
    for (uint32_t w = own.waits_begin; w < fact.waits_end; ++w)
      list_.waits.push_back(own.items[static_cast<size_t>(programs_[c].waits[w])]);
  }

  bool Receive(size_t c, const Fact& fact) {
    Channel& channel = ChannelTo(static_cast<size_t>(fact.peer), static_cast<int>(c));
    if (channel.num_received == channel.sends.size()) {
      channel.receiver_waits = true;
      return false;
    }
    AddWaits(c, fact);
    list_.waits.push_back(channel.sends[channel.num_received++]);
    classes_[c].items.push_back(AddItem(Kind::kReceive, c, fact));
    return true;
  }

  void Ordinary(size_t c, const Fact& fact) {
    Class& own = classes_[c];
    AddWaits(c, fact);
    Kind kind = fact.joined ? Kind::kJoined : Kind::kRun;
    if (kind == Kind::kRun && fact.stream == schedule::kComputeStream && own.joined >= 0) {
      list_.waits.push_back(static_cast<uint32_t>(std::exchange(own.joined, -1)));
      kind = Kind::kRunJoined;
    }
    const uint32_t item = AddItem(kind, c, fact);
    own.items.push_back(item);
    if (kind == Kind::kJoined) own.joined = item;
    if (fact.op == Op::kSend) Deliver(c, fact.peer, item);
  }

  void Deliver(size_t c, int peer, uint32_t send) {
    Channel& channel = ChannelTo(c, peer);
    channel.sends.push_back(send);
    if (std::exchange(channel.receiver_waits, false)) ready_.push_back(static_cast<size_t>(peer));
  }

  // Whether the groups of an instruction have met.
  bool MeetGroups(size_t c, const Fact& fact) {
    Class& own = classes_[c];
    for (; own.groups_met < fact.groups_end; ++own.groups_met) {
      const size_t group = static_cast<size_t>(programs_[c].groups[own.groups_met]);
      const std::vector<int>& members = groups_[group].classes;
      if (classes_.size() == 1 || members.empty()) continue;
      if (!Meet(c, fact, members, meetings_[group])) return false;
    }
    return true;
  }

  bool Meet(size_t c, const Fact& fact, absl::Span<const int> members, Meeting& meeting) {
    meeting.is_there.resize(classes_.size());
    meeting.num_begun.resize(classes_.size());
    if (meeting.num_begun[c] == meeting.begun.size()) {
      if (meeting.is_there[c]) return false;
      AddWaits(c, fact);
      const bool is_last = meeting.arrivals.size() + 1 == members.size();
      if (is_last) list_.waits.insert(list_.waits.end(), meeting.arrivals.begin(), meeting.arrivals.end());
      const uint32_t arrival = AddItem(Kind::kMeet, c, fact);
      meeting.is_there[c] = true;
      meeting.arrivals.push_back(arrival);
      if (!is_last) return false;
      meeting.begun.push_back(arrival);
      meeting.arrivals.clear();
      meeting.is_there.assign(classes_.size(), false);
      for (int member : members) {
        if (static_cast<size_t>(member) != c) ready_.push_back(static_cast<size_t>(member));
      }
    }
    classes_[c].meeting = meeting.begun[meeting.num_begun[c]++];
    return true;
  }

  const absl::Span<const PlayProgram> programs_;
  const absl::Span<const schedule::Group> groups_;
  PlayList list_;
  std::vector<Class> classes_;
  std::vector<Channel> channels_;
  std::vector<Meeting> meetings_;  // by group
  std::vector<size_t> ready_;      // classes that may go on
};

}  // namespace

PlayProgram FactsOf(const schedule::Program& program, int own_class, SecondsIndexOf index_of) {
  PlayProgram facts;
  facts.num_streams = program.streams.size();
  facts.facts.reserve(program.instructions.size());
  facts.waits.reserve(program.instructions.size());
  for (const schedule::Instruction& instruction : program.instructions) {
    const Op op = instruction.op;
    for (const int wait : instruction.waits) facts.waits.push_back(wait);
    // Passes and messages, most of a step, have none: their lists are left where they lie in memory.
    if (!RunsBlock(op) && op != Op::kSend && op != Op::kReceive) {
      for (const int group : instruction.groups) facts.groups.push_back(group);
    }
    facts.facts.push_back({.op = op,
                           .joined = instruction.joined,
                           .stream = instruction.stream,
                           .peer = instruction.peer,
                           .seconds_index = op == Op::kReceive ? 0 : index_of(own_class, instruction),
                           .waits_end = static_cast<uint32_t>(facts.waits.size()),
                           .groups_end = static_cast<uint32_t>(facts.groups.size())});
  }
  return facts;
}

absl::StatusOr<PlayList> MakePlayList(absl::string_view order, absl::Span<const PlayProgram> programs,
                                      absl::Span<const schedule::Group> groups) {
  return Maker(programs, groups).Run(order);
}

absl::StatusOr<PlayList> MakePlayList(const schedule::Step& step, SecondsIndexOf index_of) {
  std::vector<PlayProgram> programs;
  for (size_t c = 0; c < step.programs.size(); ++c)
    programs.push_back(FactsOf(step.programs[c], static_cast<int>(c), index_of));
  return MakePlayList(step.order, programs, step.groups);
}

}  // namespace trainctl::simulate
