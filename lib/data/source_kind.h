// Defines the formats of data files and detects the format of a file.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainctl::recipe {
struct DataSource;
}

namespace trainctl::data {

enum class SourceKind { kIndexed, kJsonl, kParquet, kText };

// Returns the kind's name in recipes, such as "jsonl".
absl::string_view KindName(SourceKind kind);

// Whether each row of a file of this kind is a document, which may have a prompt.
inline bool HasRows(SourceKind kind) { return kind == SourceKind::kJsonl || kind == SourceKind::kParquet; }

// Returns the kind of a file: the kind stated by the source or, if that is "auto", the kind that matches the
// file name without a final .gz or .zst. .bin and .idx mean indexed, .jsonl and .ndjson mean JSONL, and
// .parquet means Parquet. Archives and other tabular files are errors, and all other files are text. A file
// without a suffix, such as one in a model hub's cache, is Parquet if it starts with Parquet's magic bytes.
// Thread-safe.
absl::StatusOr<SourceKind> KindOfFile(const recipe::DataSource& source, const std::string& file);

}  // namespace trainctl::data
