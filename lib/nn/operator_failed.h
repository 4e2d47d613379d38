// The exception of an operator whose failure already has a status. Code that catches it returns `status` and
// so keeps the status code, which an ordinary exception would lose.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include "absl/status/status.h"

namespace trainctl::nn {

struct OperatorFailed : std::runtime_error {
  explicit OperatorFailed(absl::Status what)
      : std::runtime_error(std::string(what.message())), status(std::move(what)) {}
  absl::Status status;
};

}  // namespace trainctl::nn
