// What the notes of published runs, and the pages that they come from, say of switches that have no column.
// Each rule names its page. Pure; thread safe.
#pragma once

#include <string>
#include <vector>

#include "frameworks/workload.h"

namespace trainctl::published {

struct RunText {
  std::string source;
  std::string model;
  std::string optimizer;
  std::string notes;
};

// After everything that has a column has been read. Adds what was taken for granted to `assumptions`.
void ApplyNotes(const RunText& text, frameworks::Workload& workload, std::vector<std::string>& assumptions);

}  // namespace trainctl::published
