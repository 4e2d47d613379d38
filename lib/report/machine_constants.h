// What the catalogue says of a machine, for people: each number with its source. Pure; thread safe.
#pragma once

#include <vector>

#include "cluster/catalogue.h"
#include "report/page.h"

namespace trainctl::report {

// `device` in `node`, whose own device it need not be.
std::vector<PageConstant> ConstantsOf(const cluster::Device& device, const cluster::Node& node);

}  // namespace trainctl::report
