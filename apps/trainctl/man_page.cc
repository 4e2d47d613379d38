#include "apps/trainctl/man_page.h"

#include <CLI/CLI.hpp>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "apps/trainctl/completion.h"

namespace trainctl::cli {
namespace {

// Text as roff prints it: a hyphen that can be copied, and no line that reads as a request.
std::string Roff(absl::string_view text) {
  std::vector<std::string> lines =
      absl::StrSplit(absl::StrReplaceAll(text, {{"\\", "\\e"}, {"-", "\\-"}}), '\n');
  for (std::string& line : lines) {
    if (absl::StartsWith(line, ".") || absl::StartsWith(line, "'")) line = absl::StrCat("\\&", line);
  }
  return absl::StrJoin(lines, "\n");
}

// The same broken into short lines, which roff joins again.
std::string Filled(absl::string_view text) {
  constexpr size_t kColumns = 76;
  std::string filled;
  size_t column = 0;
  for (absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    const bool breaks = column > 0 && column + 1 + word.size() > kColumns;
    absl::StrAppend(&filled, column == 0 ? "" : breaks ? "\n" : " ", word);
    column = (breaks || column == 0 ? 0 : column + 1) + word.size();
  }
  return Roff(filled);
}

std::string Bold(absl::string_view text) { return absl::StrCat("\\fB", Roff(text), "\\fR"); }
std::string Italic(absl::string_view text) { return absl::StrCat("\\fI", Roff(text), "\\fR"); }

std::string Title(const CLI::App& verb, const std::string& path) {
  std::string title = Bold(path);
  if (!VisibleOptions(verb).empty()) absl::StrAppend(&title, " [", Italic("OPTIONS"), "]");
  for (const CLI::Option* positional : Positionals(verb)) {
    const std::string dots = positional->get_items_expected_max() > 1 ? "..." : "";
    const std::string name = absl::StrCat(Italic(positional->get_name(true)), dots);
    absl::StrAppend(&title, " ", positional->get_required() ? name : absl::StrCat("[", name, "]"));
  }
  return title;
}

std::string OptionNames(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back(Bold(absl::StrCat("-", name)));
  for (const std::string& name : option.get_lnames()) names.push_back(Bold(absl::StrCat("--", name)));
  std::string text = absl::StrJoin(names, ", ");
  if (TakesValue(option)) absl::StrAppend(&text, " ", Italic(ValueName(option)));
  return text;
}

std::string OptionEntry(const std::string& names, const CLI::Option& option) {
  std::string text = absl::StrCat(".TP\n", names, "\n", Filled(option.get_description()));
  if (!option.get_default_str().empty())
    absl::StrAppend(&text, "\n(default: ", Roff(option.get_default_str()), ")");
  return absl::StrCat(text, "\n");
}

void AddVerb(const CLI::App& verb, const std::string& path, std::string& page) {
  const std::vector<const CLI::App*> below = VisibleVerbs(verb);
  if (below.empty()) {
    absl::StrAppend(&page, ".SS ", Title(verb, path), "\n", Filled(verb.get_description()), ".\n");
    for (const CLI::Option* positional : Positionals(verb)) {
      page += OptionEntry(Italic(positional->get_name(true)), *positional);
    }
    for (const CLI::Option* option : VisibleOptions(verb)) {
      if (option != verb.get_help_ptr()) page += OptionEntry(OptionNames(*option), *option);
    }
    const std::string footer = verb.get_footer();
    const size_t example = footer.find('\n');
    if (example != std::string::npos) {
      absl::StrAppend(&page, ".PP\nExample:\n.PP\n.nf\n", Roff(footer.substr(example + 1)), "\n.fi\n");
    }
  }
  for (const CLI::App* sub : below) AddVerb(*sub, absl::StrCat(path, " ", sub->get_name()), page);
}

constexpr char kExitStatus[] = R"(.SH EXIT STATUS
.TP
0
success
.TP
1
an internal error; please report it
.TP
2
invalid usage or recipe
.TP
3
no plan fits
.TP
4
a worker failed
.TP
5
the environment lacks something the command needs
.TP
6
invalid data or checkpoint
.TP
7
a check failed
.TP
75
stopped on request after saving; can be resumed
.TP
130
stopped without saving
.SH ENVIRONMENT
.TP
NO_COLOR
disables colors on a terminal
.TP
XDG_CONFIG_HOME
folder in which
.B trainctl calibrate
stores trainctl/machine.json (default: ~/.config)
.SH FILES
.TP
runs/
run folders, unless the recipe sets run.root
.SH SEE ALSO
.B trainctl recipe explain
describes each key of a recipe.
)";

}  // namespace

std::string ManPage(const CLI::App& root, const std::string& version) {
  std::string page = absl::StrCat(
      ".\\\" Made by `trainctl man`.\n.TH TRAINCTL 1 \"\" \"trainctl ", version,
      "\" \"User Commands\"\n.SH NAME\ntrainctl \\- plan, launch and resume the training of "
      "large language models\n.SH SYNOPSIS\n",
      Bold("trainctl"), " ", Italic("VERB"), " [", Italic("OPTIONS"), "]\n.SH DESCRIPTION\n",
      Roff(root.get_description()), "\nResults go to stdout, progress and errors to stderr.\nEvery verb has ",
      Bold("--help"), ".\n.SH VERBS\n");
  AddVerb(root, "trainctl", page);
  return page + kExitStatus;
}

}  // namespace trainctl::cli
