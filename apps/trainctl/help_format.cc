#include "apps/trainctl/help_format.h"

#include <CLI/CLI.hpp>
#include <utility>

#include "absl/strings/str_cat.h"

namespace trainctl::cli {
namespace {

// A verb's footer is its example (SetExample). The program's footer is text for the end of the page.
bool HasExample(const CLI::App& app) { return app.get_parent() != nullptr && !app.get_footer().empty(); }

}  // namespace

std::string HelpFormat::make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const {
  std::string page = Formatter::make_help(app, std::move(name), mode);
  while (page.size() > 1 && page.ends_with("\n\n")) page.pop_back();
  return page;
}

std::string HelpFormat::make_usage(const CLI::App* app, std::string name) const {
  const std::string usage = absl::StrCat("\n", Formatter::make_usage(app, std::move(name)));
  return HasExample(*app) ? absl::StrCat("\n", app->get_footer(), "\n", usage) : usage;
}

std::string HelpFormat::make_footer(const CLI::App* app) const {
  return HasExample(*app) ? std::string() : Formatter::make_footer(app);
}

}  // namespace trainctl::cli
