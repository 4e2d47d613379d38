#include "device/error_text.h"

#include <c10/util/Exception.h>

namespace trainctl::device {

std::string ErrorText(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  std::string text = torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
  // Errors of the distributed part have it in the message itself.
  if (const size_t stack = text.find("\nException raised from"); stack != std::string::npos)
    text.resize(stack);
  return text;
}

}  // namespace trainctl::device
