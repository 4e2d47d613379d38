#include "base/clock.h"

#include <ctime>

#include "absl/time/clock.h"

namespace trainctl {

absl::Time RealClock::Now() const { return absl::Now(); }

absl::Duration RealClock::Monotonic() const {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return absl::DurationFromTimespec(now);
}

absl::Time FakeClock::Now() const {
  std::lock_guard lock(mutex_);
  return absl::FromUnixSeconds(1'700'000'000) + elapsed_;
}

absl::Duration FakeClock::Monotonic() const {
  std::lock_guard lock(mutex_);
  return elapsed_;
}

void FakeClock::Advance(absl::Duration by) {
  std::lock_guard lock(mutex_);
  elapsed_ += by;
}

}  // namespace trainctl
