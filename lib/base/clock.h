// Time, injected: production code takes a Clock, tests pass a FakeClock. Thread safe.
#pragma once

#include <mutex>

#include "absl/time/time.h"

namespace trainctl {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual absl::Time Now() const = 0;            // wall clock, for names and reports
  virtual absl::Duration Monotonic() const = 0;  // since an arbitrary start; never steps back
};

class RealClock : public Clock {
 public:
  absl::Time Now() const override;
  absl::Duration Monotonic() const override;
};

class FakeClock : public Clock {
 public:
  absl::Time Now() const override;
  absl::Duration Monotonic() const override;
  void Advance(absl::Duration by);

 private:
  mutable std::mutex mutex_;
  absl::Duration elapsed_ = absl::ZeroDuration();
};

}  // namespace trainctl
