#include "simulate/play.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace trainctl::simulate {
namespace {

using schedule::Instruction;
using schedule::Op;

class Player {
 public:
  Player(const schedule::Step& step, SecondsOf seconds_of, const PlayOptions& options)
      : step_(step),
        seconds_of_(seconds_of),
        options_(options),
        num_classes_(step.programs.size()),
        classes_(num_classes_) {
    for (size_t c = 0; c < num_classes_; ++c) {
      const schedule::Program& program = step.programs[c];
      classes_[c].stream_end.assign(program.streams.size(), 0);
      classes_[c].times.reserve(program.instructions.size());
    }
    if (num_classes_ > 1) arrivals_.resize(step.groups.size());
  }

  absl::StatusOr<Played> Run() {
    ready_.resize(num_classes_);
    for (size_t c = 0; c < num_classes_; ++c) ready_[c] = num_classes_ - 1 - c;
    while (!ready_.empty()) {
      const size_t c = ready_.back();
      ready_.pop_back();
      RunClass(c);
    }
    for (size_t c = 0; c < num_classes_; ++c) {
      const size_t next = classes_[c].times.size();
      if (next == step_.programs[c].instructions.size()) continue;
      return InternalError(absl::StrCat("step '", step_.order, "': class ", c,
                                        " waits for ever at instruction ", next, " (",
                                        Describe(step_.programs[c].instructions[next]), ")"));
    }
    return Summary();
  }

 private:
  struct Class {
    std::vector<InstructionTime> times;
    std::vector<double> stream_end;
    double busy_s = 0;
    double first_s = -1;
    double last_s = 0;
    int joined = -1;                          // a forward that waits for the backward that it runs with
    std::vector<std::pair<int, size_t>> out;  // (class, position in channels_); few
  };
  struct Channel {
    std::vector<double> arrivals_s;
    size_t num_received = 0;
    bool receiver_waits = false;
  };
  // One meeting of the classes of a group after another.
  struct Meeting {
    std::vector<double> ready_s;  // by class: of the meeting under way; negative: not there yet
    size_t num_there = 0;
    std::vector<double> begins_s;   // of those that took place
    std::vector<size_t> num_begun;  // by class
  };

  Channel& ChannelTo(size_t from, int to) {
    for (const auto& [peer, id] : classes_[from].out) {
      if (peer == to) return channels_[id];
    }
    classes_[from].out.emplace_back(to, channels_.size());
    return channels_.emplace_back();
  }

  double& StreamEnd(Class& own, const Instruction& instruction) {
    return own.stream_end[options_.overlap ? static_cast<size_t>(instruction.stream) : 0];
  }

  // When an instruction could begin for all that its own class knows.
  double ReadyAt(Class& own, const Instruction& instruction) {
    double begin = StreamEnd(own, instruction);
    for (const int wait : instruction.waits)
      begin = std::max(begin, own.times[static_cast<size_t>(wait)].end_s());
    return begin;
  }

  void RunClass(size_t c) {
    Class& own = classes_[c];
    const std::vector<Instruction>& list = step_.programs[c].instructions;
    while (own.times.size() < list.size()) {
      const Instruction& instruction = list[own.times.size()];
      bool went_on = true;
      if (instruction.op == Op::kReceive) {
        went_on = Receive(c, own, instruction);
      } else if (instruction.joined) {
        // Its times are known when its partner's are.
        own.joined = static_cast<int>(own.times.size());
        own.times.push_back({ReadyAt(own, instruction), 0});
      } else {
        went_on = Ordinary(c, own, instruction);
      }
      if (!went_on) return;
    }
  }

  bool Receive(size_t c, Class& own, const Instruction& instruction) {
    Channel& channel = ChannelTo(static_cast<size_t>(instruction.peer), static_cast<int>(c));
    if (channel.num_received == channel.arrivals_s.size()) {
      channel.receiver_waits = true;
      return false;
    }
    const double begin = ReadyAt(own, instruction);
    const double end = std::max(begin, channel.arrivals_s[channel.num_received++]);
    own.times.push_back({begin, end - begin});
    StreamEnd(own, instruction) = end;
    return true;
  }

  bool Ordinary(size_t c, Class& own, const Instruction& instruction) {
    double begin = ReadyAt(own, instruction);
    // Passes and messages, most of a step, have none: their lists are left where they lie in memory.
    if (num_classes_ > 1 && !RunsBlock(instruction.op) && instruction.op != Op::kSend) {
      for (int group : instruction.groups) {
        if (!Meet(c, group, begin)) return false;
      }
    }
    double seconds = seconds_of_(static_cast<int>(c), instruction);
    const bool computes = instruction.stream == schedule::kComputeStream;
    if (computes && own.joined >= 0) {
      InstructionTime& partner = own.times[static_cast<size_t>(std::exchange(own.joined, -1))];
      begin = std::max(begin, partner.begin_s);
      const double other =
          seconds_of_(static_cast<int>(c),
                      step_.programs[c].instructions[static_cast<size_t>(&partner - own.times.data())]);
      seconds = std::max(seconds, other) + (1 - options_.joined_overlap) * std::min(seconds, other);
      partner = {begin, seconds};
    }
    own.times.push_back({begin, seconds});
    const double end = begin + seconds;
    StreamEnd(own, instruction) = end;
    if (instruction.op == Op::kSend) Deliver(c, instruction, end);
    if (!computes) return true;
    own.busy_s += seconds;
    if (own.first_s < 0) own.first_s = begin;
    own.last_s = end;
    return true;
  }

  // Whether all classes of a group are there; `begin` is then when the last of them was.
  bool Meet(size_t c, int group, double& begin) {
    const std::vector<int>& members = step_.groups[static_cast<size_t>(group)].classes;
    if (members.empty()) return true;
    Meeting& meeting = arrivals_[static_cast<size_t>(group)];
    if (meeting.ready_s.empty()) {
      meeting.ready_s.assign(num_classes_, -1);
      meeting.num_begun.assign(num_classes_, 0);
    }
    if (meeting.num_begun[c] == meeting.begins_s.size()) {
      if (meeting.ready_s[c] < 0) {
        meeting.ready_s[c] = begin;
        ++meeting.num_there;
      }
      if (meeting.num_there < members.size()) return false;
      meeting.begins_s.push_back(*std::max_element(meeting.ready_s.begin(), meeting.ready_s.end()));
      meeting.ready_s.assign(num_classes_, -1);
      meeting.num_there = 0;
      for (int member : members) {
        if (static_cast<size_t>(member) != c) ready_.push_back(static_cast<size_t>(member));
      }
    }
    begin = std::max(begin, meeting.begins_s[meeting.num_begun[c]++]);
    return true;
  }

  void Deliver(size_t c, const Instruction& send, double end) {
    Channel& channel = ChannelTo(c, send.peer);
    channel.arrivals_s.push_back(end + options_.latency_s);
    if (std::exchange(channel.receiver_waits, false)) ready_.push_back(static_cast<size_t>(send.peer));
  }

  Played Summary() {
    Played played;
    for (const Class& own : classes_) {
      for (const double end : own.stream_end) played.end_s = std::max(played.end_s, end);
    }
    for (Class& own : classes_) {
      PlayedClass& result = played.classes.emplace_back();
      result.times = std::move(own.times);
      result.busy_s = own.busy_s;
      result.bubble_s = played.end_s - own.busy_s;
      result.inner_bubble_s = own.last_s - std::max(0.0, own.first_s) - own.busy_s;
    }
    return played;
  }

  const schedule::Step& step_;
  const SecondsOf seconds_of_;
  const PlayOptions& options_;
  const size_t num_classes_;
  std::vector<Class> classes_;
  std::vector<Channel> channels_;
  std::vector<Meeting> arrivals_;  // by group
  std::vector<size_t> ready_;      // classes that may go on
};

}  // namespace

double Played::max_bubble_s() const {
  double most = 0;
  for (const PlayedClass& own : classes) most = std::max(most, own.bubble_s);
  return most;
}

double Played::max_inner_bubble_s() const {
  double most = 0;
  for (const PlayedClass& own : classes) most = std::max(most, own.inner_bubble_s);
  return most;
}

absl::StatusOr<Played> Play(const schedule::Step& step, SecondsOf seconds_of, const PlayOptions& options) {
  return Player(step, seconds_of, options).Run();
}

}  // namespace trainctl::simulate
