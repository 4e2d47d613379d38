// What `trainctl plan` was asked for.
#pragma once

#include <string>
#include <vector>

#include "base/output_file.h"

namespace trainctl::cli {

struct PlanOptions {
  std::string recipe;
  std::vector<std::string> sets;  // with those that --price, --objective and --as stand for
  std::vector<std::string> sweeps;
  std::string profile;  // of `trainctl calibrate FILE.csv`
  std::string write, trace, html;
  OutputRules output_rules;  // of these three
  int top = 5;               // of a what-if
  bool all = false;          // of our own trainer: not only the best of each family
  bool explain = false;
  bool draw = false;
  bool pareto = false;
};

}  // namespace trainctl::cli
