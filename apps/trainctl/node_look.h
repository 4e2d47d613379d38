// What an agent tells of its machine before workers start there.
#pragma once

#include <string>

#include "rendezvous/node_facts.h"

namespace trainctl::cli {

// Hashes the worker's program and the device plugin beside it, asks the kernel for memory and a driver for
// its devices. What cannot be told stays unknown.
rendezvous::NodeFacts LookAtThisNode(const std::string& worker_program);

}  // namespace trainctl::cli
