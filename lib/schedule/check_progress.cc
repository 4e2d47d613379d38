#include "schedule/check_progress.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "schedule/check_program.h"

namespace trainctl::schedule {
namespace {

bool IsMessage(Op op) { return op == Op::kSend || op == Op::kReceive; }

// An execution of all programs that knows only who waits for whom. Each class has lanes: one per stream, or
// in kList order a single one. The head of a lane starts when it may; the lane moves on when its head has
// completed or, in kList order, when an exchange has started.
class Progress {
 public:
  Progress(const Step& step, const Exchanges& exchanges, const Transport& transport)
      : step_(step), exchanges_(exchanges), transport_(transport), classes_(step.programs.size()) {
    TRAINCTL_CHECK(transport.max_in_flight == 0 || transport.order == MessageOrder::kList);
    for (const Exchanges::Meeting& meeting : exchanges.meetings())
      meetings_.push_back({std::vector<int>(meeting.classes.size(), 0), 0});
    for (size_t c = 0; c < classes_.size(); ++c) {
      const Program& program = step.programs[c];
      Class& state = classes_[c];
      const size_t n = program.instructions.size();
      state.phases.assign(n, Phase::kWaits);
      state.following.assign(n, -1);
      state.heads.assign(is_list() ? 1 : program.streams.size(), -1);
      for (size_t i = n; i-- > 0;) state.following[i] = std::exchange(HeadOf(c, i), static_cast<int>(i));
      Wake(static_cast<int>(c));
    }
  }

  // Whether every class finishes.
  bool Run() {
    while (!woken_.empty()) {
      const int c = woken_.back();
      woken_.pop_back();
      classes_[static_cast<size_t>(c)].awake = false;
      RunClass(static_cast<size_t>(c));
    }
    for (const Class& state : classes_) {
      for (const int head : state.heads) {
        if (head >= 0) return false;
      }
    }
    return num_in_flight_ == 0;
  }

  // After Run stopped short: continues with one more message in flight per rank. False: no rank waits for
  // that.
  bool RaiseLimit() {
    bool helps = false;
    for (size_t c = 0; c < classes_.size(); ++c) {
      const int head = classes_[c].heads[0];
      if (head < 0 || !IsFull(c, head) || !MayStartBut(c, head)) continue;
      helps = true;
      Wake(static_cast<int>(c));
    }
    ++transport_.max_in_flight;
    return helps;
  }

  int limit() const { return transport_.max_in_flight; }

  // After Run stopped short: the cycle of instructions that wait for each other.
  absl::Status Cycle(const std::string& circumstances) const {
    std::vector<Hop> path = {{AnyStuck(), ""}};
    size_t begin = 0;  // where the last node of the path was before
    do {
      path.push_back(Cause(path.back().at));
      for (begin = 0; path[begin].at != path.back().at;) ++begin;
    } while (begin + 1 == path.size());
    const Node first = path[begin].at;
    std::string text = absl::StrCat("waits forever", circumstances, ": ");
    constexpr size_t kMaxHops = 16;
    for (size_t k = begin + 1; k < path.size(); ++k) {
      if (k - begin > kMaxHops) {
        absl::StrAppend(&text, "; and so on, over ", path.size() - k - 1, " more, back to itself");
        break;
      }
      absl::StrAppend(&text, k == begin + 1 ? "it " : "; that ", path[k].why, " ",
                      k + 1 == path.size() ? "the first again" : NameOf(path[k].at));
    }
    return CheckFailure(step_, static_cast<int>(first.own_class), first.index, text);
  }

 private:
  enum class Phase : uint8_t { kWaits, kInFlight, kDone };
  struct Class {
    std::vector<Phase> phases;   // by instruction
    std::vector<int> following;  // the next instruction of the same lane; -1: none
    std::vector<int> heads;      // by lane: an instruction; -1: the lane has finished
    int num_in_flight = 0;       // messages
    bool awake = false;          // in woken_
  };
  struct Meeting {
    std::vector<int> num_started;  // by party
    int num_completed = 0;
  };
  struct Node {
    size_t own_class = 0;
    int index = 0;
    bool operator==(const Node&) const = default;
  };
  struct Hop {
    Node at;
    std::string why;  // the node before waits for this one
  };

  bool is_list() const { return transport_.order == MessageOrder::kList; }
  const Instruction& At(size_t c, int index) const {
    return step_.programs[c].instructions[static_cast<size_t>(index)];
  }
  int& HeadOf(size_t c, size_t index) {
    const size_t lane = is_list() ? 0 : static_cast<size_t>(step_.programs[c].instructions[index].stream);
    return classes_[c].heads[lane];
  }

  void Wake(int c) {
    if (std::exchange(classes_[static_cast<size_t>(c)].awake, true)) return;
    woken_.push_back(c);
  }

  void RunClass(size_t c) {
    Class& state = classes_[c];
    for (bool progress = true; progress;) {
      progress = false;
      for (int& head : state.heads) {
        while (head >= 0) {
          const size_t index = static_cast<size_t>(head);
          if (state.phases[index] == Phase::kWaits) {
            if (IsFull(c, head) || !MayStartBut(c, head)) break;
            Start(c, head);
            progress = true;
          }
          const bool goes_on = is_list() && At(c, head).stream != kComputeStream;
          if (state.phases[index] != Phase::kDone && !goes_on) break;
          head = state.following[index];
          progress = true;
        }
      }
    }
  }

  bool IsFull(size_t c, int index) const {
    return transport_.max_in_flight > 0 && IsMessage(At(c, index).op) &&
           classes_[c].num_in_flight >= transport_.max_in_flight;
  }
  // The head of a lane, but for the limit.
  bool MayStartBut(size_t c, int index) const {
    return FirstWait(c, At(c, index)) < 0 && ComputationBefore(c, index) < 0;
  }
  // A computation earlier in the list that has not completed, for an exchange; -1: none.
  int ComputationBefore(size_t c, int index) const {
    const int head = classes_[c].heads[kComputeStream];
    return !is_list() && At(c, index).stream != kComputeStream && head < index ? head : -1;
  }
  int FirstWait(size_t c, const Instruction& instruction) const {
    for (const int wait : instruction.waits) {
      if (classes_[c].phases[static_cast<size_t>(wait)] != Phase::kDone) return wait;
    }
    return -1;
  }

  void Start(size_t c, int index) {
    Class& state = classes_[c];
    const Instruction& instruction = At(c, index);
    state.phases[static_cast<size_t>(index)] = Phase::kInFlight;
    ++num_in_flight_;
    if (IsMessage(instruction.op)) ++state.num_in_flight;
    const Exchanges::Place& place = exchanges_.PlaceOf(c, static_cast<size_t>(index));
    if (place.meeting < 0) return Complete(c, index);
    const Exchanges::Meeting& meeting = exchanges_.meetings()[static_cast<size_t>(place.meeting)];
    Meeting& seen = meetings_[static_cast<size_t>(place.meeting)];
    ++seen.num_started[static_cast<size_t>(place.party)];
    if (transport_.buffers_sends && instruction.op == Op::kSend) Complete(c, index);
    while (seen.num_completed < *std::min_element(seen.num_started.begin(), seen.num_started.end())) {
      const size_t k = static_cast<size_t>(seen.num_completed++);
      for (size_t party = 0; party < meeting.classes.size(); ++party)
        Complete(static_cast<size_t>(meeting.classes[party]), meeting.instructions[party][k]);
    }
  }

  void Complete(size_t c, int index) {
    Class& state = classes_[c];
    Phase& phase = state.phases[static_cast<size_t>(index)];
    if (std::exchange(phase, Phase::kDone) == Phase::kDone) return;
    --num_in_flight_;
    if (IsMessage(At(c, index).op)) --state.num_in_flight;
    if (exchanges_.PlaceOf(c, static_cast<size_t>(index)).meeting >= 0) Wake(static_cast<int>(c));
  }

  // ---- why it stopped -----------------------------------------------------------------------

  // A message in flight, if there is one: they tell most.
  Node AnyStuck() const {
    Node any;
    for (size_t c = 0; c < classes_.size(); ++c) {
      const std::vector<Phase>& phases = classes_[c].phases;
      for (size_t i = 0; i < phases.size(); ++i) {
        if (phases[i] == Phase::kDone) continue;
        any = {c, static_cast<int>(i)};
        if (phases[i] == Phase::kInFlight) return any;
      }
    }
    return any;
  }

  Hop Cause(const Node& node) const {
    const auto& [c, index] = node;
    const Class& state = classes_[c];
    const Instruction& instruction = At(c, index);
    if (state.phases[static_cast<size_t>(index)] == Phase::kInFlight) {
      const Exchanges::Place& place = exchanges_.PlaceOf(c, static_cast<size_t>(index));
      const Exchanges::Meeting& meeting = exchanges_.meetings()[static_cast<size_t>(place.meeting)];
      const std::vector<int>& started = meetings_[static_cast<size_t>(place.meeting)].num_started;
      for (size_t party = 0;; ++party) {
        if (started[party] > place.turn) continue;
        return {{static_cast<size_t>(meeting.classes[party]),
                 meeting.instructions[party][static_cast<size_t>(place.turn)]},
                "is in flight until its peer starts"};
      }
    }
    const int head = state.heads[is_list() ? 0 : static_cast<size_t>(instruction.stream)];
    if (head != index)
      return {{c, head}, is_list() ? "comes in the list after" : "comes on its stream after"};
    if (const int wait = FirstWait(c, instruction); wait >= 0) return {{c, wait}, "needs"};
    if (const int before = ComputationBefore(c, index); before >= 0)
      return {{c, before}, "comes in the list after"};
    for (int other = 0;; ++other) {  // the limit
      if (IsMessage(At(c, other).op) && state.phases[static_cast<size_t>(other)] == Phase::kInFlight)
        return {{c, other}, "cannot start before the end of"};
    }
  }

  // "class 1: receive block 3 micro-batch 0 from 2 (stage 2 to 1)"
  std::string NameOf(const Node& node) const {
    const auto& [c, index] = node;
    const Instruction& instruction = At(c, index);
    std::string name = absl::StrCat("class ", c, ": ", Describe(instruction));
    if (IsMessage(instruction.op)) {
      const int above = step_.StageOf(instruction.block);
      const int value = instruction.op == Op::kSend ? instruction.reads[0] : instruction.writes[0];
      const bool is_gradient =
          step_.programs[c].values[static_cast<size_t>(value)].kind == ValueKind::kHiddenGradient;
      absl::StrAppend(&name, " (stage ", is_gradient ? above : above - 1, " to ",
                      is_gradient ? above - 1 : above, ")");
    } else if (instruction.block >= 0) {
      absl::StrAppend(&name, " (stage ", step_.StageOf(instruction.block), ")");
    }
    return name;
  }

  const Step& step_;
  const Exchanges& exchanges_;
  Transport transport_;
  int num_in_flight_ = 0;  // instructions of all classes
  std::vector<Class> classes_;
  std::vector<Meeting> meetings_;
  std::vector<int> woken_;
};

}  // namespace

Exchanges::Exchanges(const Step& step) {
  for (const Group& group : step.groups)
    meetings_.push_back({group.classes, std::vector<std::vector<int>>(group.classes.size())});
  std::map<std::pair<int, int>, int> channels;  // from, to: a meeting
  places_.resize(step.programs.size());
  for (size_t c = 0; c < step.programs.size(); ++c) {
    const std::vector<Instruction>& list = step.programs[c].instructions;
    const int own = static_cast<int>(c);
    places_[c].resize(list.size());
    for (size_t i = 0; i < list.size(); ++i) {
      Place& place = places_[c][i];
      if (IsMessage(list[i].op)) {
        const bool sends = list[i].op == Op::kSend;
        const auto ends = sends ? std::pair(own, list[i].peer) : std::pair(list[i].peer, own);
        const auto [found, is_new] = channels.try_emplace(ends, static_cast<int>(meetings_.size()));
        if (is_new) meetings_.push_back({{ends.first, ends.second}, std::vector<std::vector<int>>(2)});
        place = {found->second, sends ? 0 : 1, 0};
      } else {
        // Of an instruction's groups at most one has several classes: that over the pipeline.
        for (const int group : list[i].groups) {
          const std::vector<int>& classes = step.groups[static_cast<size_t>(group)].classes;
          if (classes.size() < 2) continue;
          const auto at = std::lower_bound(classes.begin(), classes.end(), own);
          place = {group, static_cast<int>(at - classes.begin()), 0};
        }
      }
      if (place.meeting < 0) continue;
      std::vector<int>& instructions =
          meetings_[static_cast<size_t>(place.meeting)].instructions[static_cast<size_t>(place.party)];
      place.turn = static_cast<int>(instructions.size());
      instructions.push_back(static_cast<int>(i));
    }
  }
}

absl::Status CheckProgress(const Step& step, const Exchanges& exchanges, const Transport& transport,
                           int needed) {
  Progress progress(step, exchanges, transport);
  if (progress.Run()) return absl::OkStatus();
  std::string circumstances;
  if (transport.order == MessageOrder::kStreams) circumstances = " with one message in flight per stream";
  if (transport.max_in_flight > 0) {
    circumstances =
        absl::StrCat(" with ", transport.max_in_flight, " message", transport.max_in_flight > 1 ? "s" : "",
                     " in flight per rank", needed > 0 ? absl::StrCat(" (the step needs ", needed, ")") : "");
  }
  return progress.Cycle(circumstances);
}

int MinMessagesInFlight(const Step& step, const Exchanges& exchanges) {
  // A class that stands still with a limit gets no further with it in any interleaving, so the execution that
  // stopped is continued with the next limit instead of repeated.
  Progress progress(step, exchanges, {.order = MessageOrder::kList, .max_in_flight = 1});
  while (!progress.Run()) {
    if (!progress.RaiseLimit()) return 0;
  }
  return progress.limit();
}

}  // namespace trainctl::schedule
