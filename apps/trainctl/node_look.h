// What an agent tells of its machine before workers start there.
#pragma once

#include <string>

#include "rendezvous/node_facts.h"
#include "rendezvous/service.h"

namespace trainctl::cli {

// Hashes this program, the worker's, the device plugin beside it and the LibTorch that they would load, asks
// the kernel for memory and disks and a driver for its devices. What cannot be told stays unknown.
rendezvous::NodeFacts LookAtThisNode(const std::string& worker_program, const rendezvous::NodeSetup& setup);

// Of the recipe and the plan in a run's folder, from which workers make their step; empty: they cannot be
// read.
std::string HashRunFiles(const std::string& run_dir);

}  // namespace trainctl::cli
