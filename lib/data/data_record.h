// What data.json of a run holds: the fingerprints of its data files at the first launch. Pure; thread safe.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/batch_source.h"

namespace trainctl::data {

std::string FormatDataRecord(const std::vector<FileFingerprint>& files);
// `path`: for messages. BadDataError for anything that FormatDataRecord does not write.
absl::StatusOr<std::vector<FileFingerprint>> ParseDataRecord(const std::string& text,
                                                             const std::string& path);

}  // namespace trainctl::data
