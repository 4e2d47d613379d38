// What the counting device (counting_device.cc) was asked to do, by names: "rms_norm", "product".
#pragma once

#include <cstdint>

namespace trainctl::test_device {

struct Count {
  const char* name = nullptr;
  int64_t calls = 0;
  int64_t bytes = 0;  // of operands, each read or written once
};

// Exported by the plugin as `trainctl_counts`: copies at most `room`, returns how many there are.
inline constexpr char kCountsSymbol[] = "trainctl_counts";
using CountsFunction = int (*)(Count* counts, int room);

// Names that are no launches. Blocking: the host waits for the device.
inline constexpr char kBlocking[] = "blocking";
inline constexpr char kAllocation[] = "allocation";
inline constexpr char kProduct[] = "product";
inline constexpr char kAttention[] = "attention";

}  // namespace trainctl::test_device
