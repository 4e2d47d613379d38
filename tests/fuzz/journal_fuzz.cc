// Fuzzes the journal of a run: what a crash, a full disk or a hand has made of the file is replayed or
// refused with its line, and a torn last line changes nothing.

#include <cstdint>
#include <string>

#include "absl/strings/match.h"
#include "base/status.h"
#include "run/journal.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  using namespace trainctl;
  const std::string text(reinterpret_cast<const char*>(data), size_bytes);
  const absl::StatusOr<run::RunState> state = run::ReplayJournal(text, "journal.jsonl");
  if (!state.ok()) {
    TRAINCTL_CHECK(absl::StrContains(state.status().message(), "journal.jsonl"));
    return 0;
  }
  TRAINCTL_CHECK(!run::RunStatusName(state->status).empty());
  if (size_bytes == 0 || text.back() != '\n') return 0;
  const absl::StatusOr<run::RunState> torn = run::ReplayJournal(text + "{\"v\":1,\"ev", "journal.jsonl");
  TRAINCTL_CHECK(torn.ok() && torn->status == state->status && torn->generation == state->generation);
  return 0;
}
