#include "base/shared_libraries.h"

#include <elf.h>
#include <link.h>
#include <sys/auxv.h>

#include <cstdint>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/run_program.h"
#include "base/status.h"

namespace trainctl {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(5);
constexpr size_t kMaxPrinted = 256 << 10;

// Of this process; empty: it has none.
std::string DynamicLoader() {
  const auto* const headers = reinterpret_cast<const ElfW(Phdr)*>(::getauxval(AT_PHDR));
  const size_t count = ::getauxval(AT_PHNUM);
  std::string loader;
  uintptr_t base = 0;
  for (size_t i = 0; headers != nullptr && i < count; ++i) {  // PT_PHDR comes before all others
    if (headers[i].p_type == PT_PHDR) base = reinterpret_cast<uintptr_t>(headers) - headers[i].p_vaddr;
    if (headers[i].p_type == PT_INTERP) loader = reinterpret_cast<const char*>(base + headers[i].p_vaddr);
  }
  return loader;
}

}  // namespace

absl::StatusOr<std::vector<SharedLibrary>> FindSharedLibraries(
    const std::string& program, const std::map<std::string, std::string>& variables) {
  const std::string loader = DynamicLoader();
  std::vector<std::string> command = {FindInPath("env")};
  if (loader.empty() || command[0].empty()) {
    return EnvironmentError(absl::StrCat("nothing tells which libraries ", program, " loads"));
  }
  for (const auto& [name, value] : variables) command.push_back(absl::StrCat(name, "=", value));
  command.insert(command.end(), {loader, "--list", program});
  TRAINCTL_ASSIGN_OR_RETURN(const ProgramEnd end, RunProgram(command, kPatience, kMaxPrinted));
  if (end.is_late || !end.exit.Success()) {
    return EnvironmentError(
        absl::StrCat(loader, " does not tell which libraries ", program, " loads: ", end.output));
  }
  return ParseSharedLibraries(end.output);
}

std::vector<SharedLibrary> ParseSharedLibraries(absl::string_view printed) {
  std::vector<SharedLibrary> libraries;
  for (const absl::string_view line : absl::StrSplit(printed, '\n')) {
    const std::pair<absl::string_view, absl::string_view> sides =
        absl::StrSplit(line, absl::MaxSplits(" => ", 1));
    const size_t end = sides.second.rfind(" (0x");
    if (!absl::StartsWith(sides.second, "/") || end == absl::string_view::npos) continue;
    libraries.push_back(
        {std::string(absl::StripAsciiWhitespace(sides.first)), std::string(sides.second.substr(0, end))});
  }
  return libraries;
}

}  // namespace trainctl
