// Reads and writes a run's data.json, which contains the fingerprints of the data files at the first launch,
// and how fast the run reads its sources.
// Pure; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/json_fwd.h"
#include "data/batch_source.h"

namespace trainctl::data {

std::string FormatDataRecord(const std::vector<FileFingerprint>& files,
                             const std::vector<SourceUse>& uses = {});
// Parses the output of FormatDataRecord. `path` names the file in error messages. Returns BadDataError for
// any other text.
absl::StatusOr<std::vector<FileFingerprint>> ParseDataRecord(const std::string& text,
                                                             const std::string& path);
// Returns the sources in the output of FormatDataRecord. Empty if there are none, as in runs of earlier
// versions.
std::vector<SourceUse> ParseSourceUses(const std::string& text);
// Returns one object per training source for the output of --json, with its name, the tokens of an epoch, and
// how many epochs `steps` steps read. Null if `uses` is empty.
Json UsesToJson(const std::vector<SourceUse>& uses, int64_t steps);

}  // namespace trainctl::data
