// Fuzzes the state of an interrupted `trainctl data prepare`: what it takes promises no more tokens than it
// can count, is written and read as the same, and can be compared with another.

#include <cstdint>
#include <string>

#include "base/status.h"
#include "data/prepare_state.h"

namespace trainctl::data {
namespace {

void FuzzOne(const std::string& input) {
  const auto state = ParseState(input, "fuzz.json");
  if (!state.ok()) {
    TRAINCTL_CHECK(ExitCodeFor(state.status()) == ExitCode::kBadData && !state.status().message().empty());
    return;
  }
  TRAINCTL_CHECK(state->documents() >= 0 && state->tokens() >= 0);
  const std::string text = StateJson(*state);
  const auto again = ParseState(text, "again.json");
  TRAINCTL_CHECK_MSG(again.ok(), again.status().message());
  TRAINCTL_CHECK(StateJson(*again) == text);
  const Continuation from = CompareStates(*state, *again);
  TRAINCTL_CHECK(from.num_sources == state->sources.size() && from.reason.empty());
}

}  // namespace
}  // namespace trainctl::data

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  trainctl::data::FuzzOne(std::string(reinterpret_cast<const char*>(data), size_bytes));
  return 0;
}
