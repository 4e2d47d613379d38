// What an exception says, for people.
#pragma once

#include <exception>
#include <string>

namespace trainctl::device {

// Without the stack that LibTorch appends to its messages.
std::string ErrorText(const std::exception& error);

}  // namespace trainctl::device
