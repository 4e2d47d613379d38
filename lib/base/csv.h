// Reading and writing of comma-separated values as RFC 4180 has them: quoted cells may hold commas,
// line ends and doubled quotes. Pure; thread safe.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainctl {

struct CsvRecord {
  int line = 0;  // 1-based, where the record begins
  std::vector<std::string> cells;
};

// All records; empty lines are left out. `what` names the text in errors. BadDataError with line and
// column: an unclosed quote, text behind a closing quote, a NUL byte.
absl::StatusOr<std::vector<CsvRecord>> ParseCsv(absl::string_view text, absl::string_view what);

// One line, quoted where needed, with its end.
std::string CsvLine(const std::vector<std::string>& cells);

}  // namespace trainctl
