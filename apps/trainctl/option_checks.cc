#include "apps/trainctl/option_checks.h"

#include <CLI/CLI.hpp>
#include <functional>
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
                                      : absl::StrCat("of at least ", least, " that fits in 64 bits"));
      },
      "");
}

CLI::Validator NumberWithin(double least, double most) {
  return CLI::Validator(
      [least, most](std::string& text) -> std::string {
        double value = 0;
        if (absl::SimpleAtod(text, &value) && value >= least && value <= most) return "";
        return absl::StrCat("'", text.substr(0, 40), "' is not a number from ", least, " to ", most);
      },
      "");
}

void RefuseEmptyValues(CLI::App& root) {
  const CLI::Validator is_not_empty(
      [](std::string& text) -> std::string { return text.empty() ? "the value is empty" : ""; }, "");
  for (CLI::Option* option : root.get_options()) {
    if (option->get_items_expected_max() == 0 || option->check_lname("prompt")) continue;
    option->check(is_not_empty);
  }
  for (CLI::App* verb : root.get_subcommands(std::function<bool(CLI::App*)>())) RefuseEmptyValues(*verb);
}

}  // namespace trainctl::cli
