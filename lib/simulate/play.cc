#include "simulate/play.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/status.h"

namespace trainctl::simulate {
namespace {

using Kind = PlayList::Kind;

// `times`: by item; null: not wanted. Returns the end of the last instruction.
double PlayItems(const PlayList& list, absl::Span<const double> seconds_of, const PlayOptions& options,
                 InstructionTime* times) {
  std::vector<double> stream_ends(list.stream_classes.size(), 0);
  // Where a class does one thing at a time its streams are one.
  std::vector<uint32_t> stream_of(list.stream_classes.size());
  for (size_t s = 0; s < stream_of.size(); ++s) {
    stream_of[s] = options.overlap ? static_cast<uint32_t>(s) : list.compute_streams[list.stream_classes[s]];
  }
  const std::unique_ptr<double[]> ends(new double[list.items.size()]);  // each is written before it is read
  const uint32_t* wait = list.waits.data();
  for (size_t i = 0; i < list.items.size(); ++i) {
    const PlayList::Item& item = list.items[i];
    double& stream_end = stream_ends[stream_of[item.stream]];
    const uint32_t* const waits_end = list.waits.data() + item.waits_end;
    const bool receives = item.kind == Kind::kReceive;
    double begin = stream_end;
    for (; wait != waits_end - receives; ++wait) begin = std::max(begin, ends[*wait]);
    double seconds = 0;
    switch (item.kind) {
      case Kind::kJoined:
      case Kind::kMeet:
        break;
      case Kind::kReceive:
        stream_end = std::max(begin, ends[*wait++] + options.latency_s);
        seconds = stream_end - begin;
        break;
      case Kind::kRunJoined: {
        const uint32_t partner = waits_end[-1];
        const double own = seconds_of[item.seconds_index];
        const double other = seconds_of[list.items[partner].seconds_index];
        seconds = std::max(own, other) + (1 - options.joined_overlap) * std::min(own, other);
        stream_end = ends[partner] = begin + seconds;
        if (times != nullptr) times[partner] = {begin, seconds};
        break;
      }
      case Kind::kRun:
        seconds = seconds_of[item.seconds_index];
        stream_end = begin + seconds;
        break;
    }
    ends[i] = begin + seconds;
    if (times != nullptr) times[i] = {begin, seconds};
  }
  return stream_ends.empty() ? 0 : *std::max_element(stream_ends.begin(), stream_ends.end());
}

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

double PlayToEnd(const PlayList& list, absl::Span<const double> seconds, const PlayOptions& options) {
  return PlayItems(list, seconds, options, nullptr);
}

Played Play(const PlayList& list, absl::Span<const double> seconds, const PlayOptions& options) {
  std::vector<InstructionTime> times(list.items.size());
  Played played;
  played.end_s = PlayItems(list, seconds, options, times.data());
  const size_t num_classes = list.num_instructions.size();
  played.classes.resize(num_classes);
  for (size_t c = 0; c < num_classes; ++c) played.classes[c].times.reserve(list.num_instructions[c]);
  std::vector<double> first_s(num_classes, -1);
  std::vector<double> last_s(num_classes, 0);
  for (size_t i = 0; i < times.size(); ++i) {
    const PlayList::Item& item = list.items[i];
    if (item.kind == Kind::kMeet) continue;
    const size_t c = list.stream_classes[item.stream];
    PlayedClass& own = played.classes[c];
    own.times.push_back(times[i]);
    // What is joined is counted with its partner.
    if (item.stream != list.compute_streams[c] || item.kind == Kind::kJoined) continue;
    own.busy_s += times[i].seconds;
    if (first_s[c] < 0) first_s[c] = times[i].begin_s;
    last_s[c] = times[i].end_s();
  }
  for (size_t c = 0; c < num_classes; ++c) {
    PlayedClass& own = played.classes[c];
    own.bubble_s = played.end_s - own.busy_s;
    own.inner_bubble_s = last_s[c] - std::max(0.0, first_s[c]) - own.busy_s;
  }
  return played;
}

absl::StatusOr<Played> Play(const schedule::Step& step, SecondsOf seconds_of, const PlayOptions& options) {
  std::vector<double> seconds;
  const auto add = [&](int own_class, const schedule::Instruction& instruction) {
    seconds.push_back(seconds_of(own_class, instruction));
    return static_cast<uint32_t>(seconds.size() - 1);
  };
  TRAINCTL_ASSIGN_OR_RETURN(const PlayList list, MakePlayList(step, add));
  return Play(list, seconds, options);
}

}  // namespace trainctl::simulate
