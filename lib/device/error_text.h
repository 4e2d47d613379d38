// Converts exceptions of LibTorch and of the standard library to messages and statuses. Thread-safe.
#pragma once

#include <exception>
#include <string>

#include "absl/status/status.h"

namespace trainctl::device {

// Returns the exception's message without the stack trace that LibTorch appends.
std::string ErrorText(const std::exception& error);

// Returns EnvironmentError, with the limits of the process, if the system has refused CPU memory, a thread or
// a file descriptor. Returns InternalError with ErrorText for any other exception.
absl::Status StatusOf(const std::exception& error);

// Returns StatusOf the exception that is being handled: in a terminate handler, the one that ended a thread.
// Returns InternalError if there is none or if its type is unknown.
absl::Status StatusOfUncaught();

}  // namespace trainctl::device
