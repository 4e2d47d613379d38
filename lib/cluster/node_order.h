// The order of nodes in which neighbours in the network get neighbouring ranks, so that what talks most stays
// below one switch. Pure; thread safe.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace trainctl::cluster {

// `nodes` with those of one switch, or of one block, next to each other; the first stays the first, and
// otherwise their order is kept. `topology` is what `scontrol show topology` prints: a line for each switch
// (topology/tree) or block (topology/block), with all nodes below it. What it does not tell changes nothing.
std::vector<std::string> OrderBySwitch(const std::vector<std::string>& nodes, absl::string_view topology);

}  // namespace trainctl::cluster
