#include "trainer/progress.h"

#include <cstdio>

namespace trainctl::trainer {

void PrintLine(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

void PhaseReporter::Report(const char* phase) const {
  control_.Report({counters_.step > 0 ? counters_.step : -1, phase, device_.memory().peak});
}

}  // namespace trainctl::trainer
