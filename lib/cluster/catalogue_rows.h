// Data that accompanies the device rows in catalogue_devices.cc. Used only by the look-ups in catalogue.cc
// and catalogue_nodes.cc.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace trainctl::cluster {

// One way in which people name a device: a family, optionally with a form factor and a memory size. If
// several rows match a text, the first is the default.
struct Variant {
  const char* family;
  const char* device;
  std::vector<absl::string_view> forms;  // words that may describe the form factor
  std::vector<int> memory_gb;            // sizes according to the data sheet and the driver, which may differ
};
const std::vector<Variant>& Variants();

struct NodeRow {
  const char* name;
  const char* description;
  const char* device;
  int gpus;
  const char* scale_up;
  const char* scale_out;
  int nics;
  int64_t cpu_memory_bytes;
  const char* source;
};

// Prefix for the source of a host that no vendor defines.
#define ASSUMED "an assumption, no vendor defines this host: "

// Returns the hosts that are assumed for devices that appear in no other node of the catalogue.
absl::Span<const NodeRow> AssumedHosts();

}  // namespace trainctl::cluster
