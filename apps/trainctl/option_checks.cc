#include "apps/trainctl/option_checks.h"

#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace trainctl::cli {

CLI::Validator WholeNumber(int64_t least, int64_t most) {
  return CLI::Validator(
      [least, most](std::string& text) -> std::string {
        int64_t value = 0;
        if (absl::SimpleAtoi(text, &value) && value >= least && value <= most) {
          text = absl::StrCat(value);
          return "";
        }
        const bool has_limit = most != std::numeric_limits<int64_t>::max();
        return absl::StrCat("'", text.substr(0, 40), "' is not a whole number ",
                            has_limit ? absl::StrCat("from ", least, " to ", most)
                                      : absl::StrCat("of at least ", least, " that fits into 64 bits"));
      },
      "");
}

CLI::Validator NotEmpty() {
  return CLI::Validator(
      [](std::string& text) -> std::string { return text.empty() ? "the name is empty" : ""; }, "");
}

}  // namespace trainctl::cli
