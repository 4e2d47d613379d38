// The layout of --help: the page of a verb begins with an example, and lists of verbs are in groups.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace trainctl::cli {

class HelpFormat : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override;
  std::string make_usage(const CLI::App* app, std::string name) const override;
  std::string make_footer(const CLI::App* app) const override;
};

}  // namespace trainctl::cli
