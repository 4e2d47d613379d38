// Shows the progress of a worker: prints lines for the user, and reports phases to the launcher.
#pragma once

#include <string>

#include "base/control_channel.h"
#include "device/device.h"
#include "trainer/checkpointing.h"

namespace trainctl::trainer {

// Prints a line to stdout and flushes it. The launcher shows rank 0's lines and stores those of every rank.
void PrintLine(const std::string& line);

// Borrows all arguments, which must outlive it.
class PhaseReporter {
 public:
  PhaseReporter(ControlChannel& control, const device::Device& device, const RunCounters& counters)
      : control_(control), device_(device), counters_(counters) {}

  // Reports a phase between two steps, such as "save", with the number of the last completed step.
  void Report(const char* phase) const;

 private:
  ControlChannel& control_;
  const device::Device& device_;
  const RunCounters& counters_;
};

}  // namespace trainctl::trainer
