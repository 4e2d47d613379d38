#include "device/error_text.h"

#include <c10/util/Exception.h>

#include <exception>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/process_limits.h"
#include "base/status.h"

namespace trainctl::device {

std::string ErrorText(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  std::string text = torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
  // Errors of the distributed part have it in the message itself.
  if (const size_t stack = text.find("\nException raised from"); stack != std::string::npos)
    text.resize(stack);
  return text;
}

absl::Status StatusOf(const std::exception& error) {
  if (std::optional<absl::Status> refused = RefusedResource(error)) return *std::move(refused);
  const std::string text = ErrorText(error);
  // LibTorch's allocator for the CPU: "DefaultCPUAllocator: can't allocate memory: you tried to allocate N
  // bytes."
  if (absl::StrContains(text, "can't allocate memory"))
    return EnvironmentError(absl::StrCat(text, " (", LimitsText(), ")"));
  return InternalError(text);
}

absl::Status StatusOfUncaught() {
  const std::exception_ptr current = std::current_exception();
  if (current == nullptr) return InternalError("a thread ended the process without a reason");
  try {
    std::rethrow_exception(current);
  } catch (const std::exception& error) {
    return StatusOf(error);
  } catch (...) {
    return InternalError("a thread ended the process with an exception of an unknown type");
  }
}

}  // namespace trainctl::device
