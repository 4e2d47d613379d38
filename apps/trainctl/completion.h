// What can stand next on a command line: read from CLI11's own tree of verbs and options, so that a new
// option is completed without a word more. What an argument takes follows from its name (positional: RECIPE,
// RUN) or its type (option: FILE, KEY=VALUE); completion.cc has the list. Pure but for the names of run
// folders.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace trainctl::cli {

struct CompletedWord {
  std::string text;  // the whole word
  std::string description;
};

// What the shell itself adds to the candidates.
enum class FileNames { kNone, kAll, kFolders, kRecipes };

struct Completion {
  FileNames adds = FileNames::kNone;
  std::vector<CompletedWord> candidates;
};

// `before`: the whole words between the program and the cursor; `current`: what stands of the word at the
// cursor. The candidates are not yet cut to those that begin with it: shells have ways of their own to match.
Completion CompleteWord(const CLI::App& root, const std::vector<std::string>& before,
                        absl::string_view current);

// The words of a shell's command line up to the cursor, without their quotes; the last is the one at the
// cursor and may be empty.
std::vector<std::string> SplitShellLine(absl::string_view line);

// `trainctl __complete SHELL ...`, which the scripts below call:
//   bash LINE WORD     the line up to the cursor, and what bash takes for the word there (it also cuts at '='
//   and ':') zsh|fish WORD...   the words after the program; the last is the current one
// Prints "none", "files", "folders" or "recipes", then a candidate on each line, with a tab and its
// description.
int PrintCompletion(const CLI::App& root, const std::vector<std::string>& arguments);

// What is wrong with the first verb or option that the tree does not have, with the nearest that it has:
// "trainctl has no verb 'lanch'; did you mean launch?". Empty: none of the words is such.
std::string UnknownWord(const CLI::App& root, const std::vector<std::string>& words);

// The script for "bash", "zsh" or "fish", and nullptr for other shells.
const char* CompletionScript(absl::string_view shell);

// The verbs and options of `app` that help shows.
std::vector<const CLI::App*> VisibleVerbs(const CLI::App& app);
std::vector<const CLI::Option*> VisibleOptions(const CLI::App& app);
std::vector<const CLI::Option*> Positionals(const CLI::App& app);
bool TakesValue(const CLI::Option& option);
// What stands for the value in help: "RECIPE", "KEY=VALUE", "{bash,zsh,fish}".
std::string ValueName(const CLI::Option& option);

}  // namespace trainctl::cli
