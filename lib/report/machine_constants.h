// Formats the catalogue's data about a machine for display, each number with its source. Pure functions;
// thread-safe.
#pragma once

#include <vector>

#include "cluster/catalogue.h"
#include "report/page.h"

namespace trainctl::report {

// Returns the constants of `device` in `node`, even if the catalogue lists another device for this node.
std::vector<PageConstant> ConstantsOf(const cluster::Device& device, const cluster::Node& node);

}  // namespace trainctl::report
