// How many random cases a test tries: all of them, or one in 25 under the address sanitizer, where each takes
// ten times as long and the point is that nobody reads or writes what is not theirs.
#pragma once

#include <cstdint>

#if defined(__SANITIZE_ADDRESS__)
#define TRAINCTL_FEWER_CASES 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TRAINCTL_FEWER_CASES 1
#endif
#endif

namespace trainctl {

template <typename Count>
constexpr Count NumCases(Count all) {
#ifdef TRAINCTL_FEWER_CASES
  return all / 25;
#else
  return all;
#endif
}

}  // namespace trainctl
