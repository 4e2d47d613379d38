// What stands next to a device's row in catalogue_devices.cc, for the look-ups of catalogue.cc and
// catalogue_nodes.cc alone.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace trainctl::cluster {

// How people name a device: a family, perhaps a form, perhaps a size of memory. Of the rows that a text
// fits, the first is meant by default.
struct Variant {
  const char* family;
  const char* device;
  std::vector<absl::string_view> forms;  // each word that may be said of it
  std::vector<int> memory_gb;            // data sheet and driver do not agree, both are said
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

// Begins the source of a host that no vendor defines.
#define ASSUMED "an assumption, no vendor defines this host: "

// Such hosts, of devices that no other node of the catalogue has.
absl::Span<const NodeRow> AssumedHosts();

}  // namespace trainctl::cluster
