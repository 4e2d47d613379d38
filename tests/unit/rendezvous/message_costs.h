// What messages cost in a small job and in a large one. A cost is CPU time, in windows of kWindow messages of
// which the cheapest counts, so that neither a busy machine nor a broadcast in one of them matters. A scan of
// all that a job has makes it as many times as high as the job is larger, the logarithm and the caches a few
// times: kLimit lies between.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/unit/num_cases.h"

namespace trainctl::rendezvous {

class MessageCosts {
 public:
  static constexpr int kWindow = 256;  // messages
  static constexpr int kNumWindows = 8;
  static constexpr int kSmall = kWindow * kNumWindows;  // members, or nodes
  static constexpr int kLarge = NumCases(100000);
  static constexpr double kLimit = 14;  // times the cost in the small job

  // By kind of message, in clock ticks per window.
  using Costs = std::map<std::string, double>;

  // Compares with `reference`, unless that is empty, and gives up at the first cost over the limit: with a
  // scan per message the rest would take minutes.
  explicit MessageCosts(Costs reference) : reference_(std::move(reference)) {}

  // All of `what`, one after the other; only `handle` is measured.
  template <typename Event>
  void Give(const std::string& what, int count, const std::function<Event(int)>& event_of,
            const std::function<void(const Event&)>& handle) {
    double cheapest = std::numeric_limits<double>::infinity();
    const int last_windows = count - kSmall;
    for (int begin = 0; begin < count && !given_up_; begin += kWindow) {
      std::vector<Event> events;
      for (int i = begin; i < std::min(begin + kWindow, count); ++i) events.push_back(event_of(i));
      const std::clock_t before = std::clock();
      for (const Event& event : events) handle(event);
      const double cost = static_cast<double>(std::clock() - before);
      if (events.size() == kWindow) cheapest = std::min(cheapest, cost);
      if (begin + kWindow == kSmall) {
        Compare(what, cheapest);
        cheapest = std::numeric_limits<double>::infinity();
      }
      if (begin < last_windows && begin + kWindow >= last_windows) {
        cheapest = std::numeric_limits<double>::infinity();  // of the last ones
      }
    }
    if (count > 2 * kSmall) Compare(what, cheapest);
  }

  bool given_up() const { return given_up_; }
  const Costs& costs() const { return costs_; }

  static void Record(const Costs& small, const Costs& large) {
    for (const auto& [what, cost] : large) {
      testing::Test::RecordProperty(what, absl::StrCat(cost, " after ", small.at(what)));
    }
  }

 private:
  void Compare(const std::string& what, double cost) {
    costs_[what] = std::max(costs_[what], cost);
    const auto reference = reference_.find(what);
    if (reference == reference_.end() || given_up_) return;
    // A window of few clock ticks is measured as one of a good many.
    const double limit = kLimit * std::max(reference->second, 20.0);
    EXPECT_LT(cost, limit) << what << ": in a job of " << kSmall << " it was " << reference->second;
    given_up_ = cost >= limit;
  }

  const Costs reference_;
  Costs costs_;
  bool given_up_ = false;
};

}  // namespace trainctl::rendezvous
