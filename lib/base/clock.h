// An injectable clock. Production code takes a Clock, and tests pass a FakeClock. Thread-safe.
#pragma once

#include <mutex>

#include "absl/time/time.h"

namespace trainctl {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual absl::Time Now() const = 0;            // wall-clock time, for file names and reports
  virtual absl::Duration Monotonic() const = 0;  // time since an arbitrary start; never decreases
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
