// Reads and writes comma-separated values (RFC 4180). Quoted cells may contain commas, newlines, and doubled
// quotes. Pure; thread-safe.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainctl {

struct CsvRecord {
  int line = 0;  // line at which the record begins, counted from 1
  std::vector<std::string> cells;
};

// Parses all records, skipping empty lines. `what` names the text in error messages. Returns BadDataError
// with the line and column if a quote is not closed, if text follows a closing quote, or if there is a NUL
// byte.
absl::StatusOr<std::vector<CsvRecord>> ParseCsv(absl::string_view text, absl::string_view what);

// Formats a line, including the newline. Quotes cells as needed.
std::string CsvLine(const std::vector<std::string>& cells);

}  // namespace trainctl
