#include "simulate/play.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/status.h"

namespace trainctl::simulate {
namespace {

using Kind = PlayList::Kind;

// Keeps when each instruction ran, and sums them up.
class Record {
 public:
  explicit Record(const PlayList& list)
      : list_(list),
        first_s_(list.num_instructions.size(), -1),
        last_s_(first_s_.size(), 0),
        joined_(first_s_.size()) {
    played_.classes.resize(first_s_.size());
    for (size_t c = 0; c < first_s_.size(); ++c) played_.classes[c].times.reserve(list.num_instructions[c]);
  }

  void operator()(const PlayList::Item& item, double begin_s, double seconds) {
    if (item.kind == Kind::kMeet) return;
    const size_t c = list_.stream_classes[item.stream];
    PlayedClass& own = played_.classes[c];
    if (item.kind == Kind::kRunJoined) own.times[joined_[c]] = {begin_s, seconds};
    if (item.kind == Kind::kJoined) joined_[c] = own.times.size();
    own.times.push_back({begin_s, seconds});
    // What is joined counts with its partner.
    if (item.stream != list_.compute_streams[c] || item.kind == Kind::kJoined) return;
    own.busy_s += seconds;
    if (first_s_[c] < 0) first_s_[c] = begin_s;
    last_s_[c] = begin_s + seconds;
  }

  Played Finish(double end_s) {
    played_.end_s = end_s;
    for (size_t c = 0; c < played_.classes.size(); ++c) {
      PlayedClass& own = played_.classes[c];
      own.bubble_s = end_s - own.busy_s;
      own.inner_bubble_s = last_s_[c] - std::max(0.0, first_s_[c]) - own.busy_s;
    }
    return std::move(played_);
  }

 private:
  const PlayList& list_;
  Played played_;
  std::vector<double> first_s_, last_s_;  // by class
  std::vector<size_t> joined_;            // likewise: the instruction that waits for its partner
};

// `record` is told begin and seconds of each item in turn. Returns the end of the last one.
template <typename RecordItem>
double PlayItems(const PlayList& list, absl::Span<const double> seconds_of, const PlayOptions& options,
                 RecordItem&& record) {
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
    double begin = stream_end;
    for (; wait != waits_end - (item.kind == Kind::kReceive ? 1 : 0); ++wait)
      begin = std::max(begin, ends[*wait]);
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
        break;
      }
      case Kind::kRun:
        seconds = seconds_of[item.seconds_index];
        stream_end = begin + seconds;
        break;
    }
    ends[i] = begin + seconds;
    record(item, begin, seconds);
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
  return PlayItems(list, seconds, options, [](const PlayList::Item&, double, double) {});
}

Played Play(const PlayList& list, absl::Span<const double> seconds, const PlayOptions& options) {
  Record record(list);
  const double end_s = PlayItems(list, seconds, options, record);
  return record.Finish(end_s);
}

absl::StatusOr<Played> Play(const schedule::Step& step, SecondsOf seconds_of, const PlayOptions& options) {
  size_t num_instructions = 0;
  for (const schedule::Program& program : step.programs) num_instructions += program.instructions.size();
  std::vector<double> seconds;
  seconds.reserve(num_instructions);
  const auto add = [&](int own_class, const schedule::Instruction& instruction) {
    seconds.push_back(seconds_of(own_class, instruction));
    return static_cast<uint32_t>(seconds.size() - 1);
  };
  TRAINCTL_ASSIGN_OR_RETURN(const PlayList list, MakePlayList(step, add));
  return Play(list, seconds, options);
}

}  // namespace trainctl::simulate
