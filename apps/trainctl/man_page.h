// The manual page, from CLI11's own tree of verbs and options. Pure.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace trainctl::cli {

// trainctl.1 in the man(7) macros.
std::string ManPage(const CLI::App& root, const std::string& version);

}  // namespace trainctl::cli
