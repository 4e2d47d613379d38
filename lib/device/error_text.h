// What an exception says, for people.
#pragma once

#include <exception>
#include <string>

#include "absl/status/status.h"

namespace trainctl::device {

// Without the stack that LibTorch appends to its messages.
std::string ErrorText(const std::exception& error);

// EnvironmentError if the system has refused memory or a thread, with the limits of the process; else
// InternalError with ErrorText.
absl::Status StatusOf(const std::exception& error);

// For a terminate handler: the exception that ended a thread, as StatusOf.
absl::Status StatusOfUncaught();

}  // namespace trainctl::device
