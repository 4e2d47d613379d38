// What an operator throws that knows more than a sentence of what went wrong.
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
