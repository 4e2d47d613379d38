// The command line that a manifest or a script is printed for: others run it later and elsewhere.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trainctl::cli {

struct PrintedLaunch {
  std::string recipe;   // a path; empty: of a run that is resumed
  std::string run_dir;  // empty: not named
  std::vector<std::string> sets;
  int64_t stop_after = -1;  // --stop-after; -1: not given
  bool trust_folder = false;
};

}  // namespace trainctl::cli
