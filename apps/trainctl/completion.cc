#include "apps/trainctl/completion.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/types/span.h"
#include "base/files.h"
#include "base/names.h"
#include "base/shell_quote.h"
#include "base/status.h"
#include "cluster/catalogue.h"
#include "frameworks/framework.h"
#include "model/presets.h"
#include "recipe/foreign_words.h"
#include "recipe/schema.h"
#include "recipe/starter.h"

namespace trainctl::cli {
namespace {

constexpr size_t kMostRuns = 200;

std::string FirstSentence(const std::string& text) { return text.substr(0, text.find(". ")); }

// "runs/<name>" of the run folders here, the newest first: their names end with the time.
std::vector<std::string> RunFolders() {
  std::vector<std::string> runs;
  std::error_code error;
  for (std::filesystem::directory_iterator it("runs", error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    if (std::filesystem::exists(it->path() / "journal.jsonl", ignored)) runs.push_back(it->path().string());
  }
  std::sort(runs.rbegin(), runs.rend());
  if (runs.size() > kMostRuns) runs.resize(kMostRuns);
  return runs;
}

// "data.train[].files" as --set wants it.
std::string SetName(const recipe::Field& field) { return field.PathAt(0); }

void AddKeys(Completion& completion) {
  for (const recipe::Field& field : recipe::GetSchema().fields()) {
    if (field.name == "recipe_version") continue;
    const char* const end = field.kind == recipe::Kind::kStringMap ? "." : "=";
    completion.candidates.push_back({absl::StrCat(SetName(field), end), FirstSentence(field.doc)});
  }
}

void AddKeysAndTables(Completion& completion) {
  std::string table;
  for (const recipe::Field& field : recipe::GetSchema().fields()) {
    const std::string parent = field.name.substr(0, field.name.find_first_of(".["));
    if (parent != table && parent != field.name) {
      completion.candidates.push_back({parent, absl::StrCat("the table [", parent, "]")});
    }
    table = parent;
    completion.candidates.push_back({SetName(field), FirstSentence(field.doc)});
  }
}

// The words that a field takes; paths are left to the shell.
void AddValues(const recipe::Field& field, absl::string_view prefix, Completion& completion) {
  std::vector<std::string> words = field.choices;
  words.insert(words.end(), field.keywords.begin(), field.keywords.end());
  if (field.kind == recipe::Kind::kBool) words = {"true", "false"};
  if (field.name == "model.preset") words = model::PresetNames();
  if (field.name == "plan.framework") {
    for (const frameworks::FrameworkProfile& profile : frameworks::Frameworks())
      words.emplace_back(profile.name);
  }
  if (field.name == "cluster.device") {
    words = {"cpu"};
    for (const cluster::Device& device : cluster::Devices()) words.emplace_back(device.name);
  }
  if (field.allow_auto) words.emplace_back("auto");
  const bool is_list = field.kind == recipe::Kind::kStringList;
  for (const std::string& word : words) {
    completion.candidates.push_back({absl::StrCat(prefix, is_list && word != "auto" ? "[\"" : "", word,
                                                  is_list && word != "auto" ? "\"]" : ""),
                                     ""});
  }
  if (field.kind == recipe::Kind::kPath) completion.adds = FileNames::kAll;
}

const recipe::Field* FindField(absl::string_view typed) {
  for (const recipe::Field& field : recipe::GetSchema().fields()) {
    if (SetName(field) == typed || field.name == typed) return &field;
  }
  return nullptr;
}

void AddAssignments(absl::string_view current, bool several_values, Completion& completion) {
  const size_t equals = current.find('=');
  if (equals == absl::string_view::npos) return AddKeys(completion);
  const recipe::Field* const field = FindField(current.substr(0, equals));
  if (field == nullptr) return;
  const size_t comma = several_values ? current.rfind(',') : absl::string_view::npos;
  const size_t begin = comma == absl::string_view::npos ? equals : comma;
  AddValues(*field, current.substr(0, begin + 1), completion);
}

// What the arguments of each name and type take.
void AddNamed(absl::string_view name, absl::string_view current, Completion& completion) {
  if (name == "RECIPE" || name == "OUT.TOML") completion.adds = FileNames::kRecipes;
  if (name == "FILE" || name == "IN" || name == "PATH" || name == "PROFILE" || name == "PREFIX" ||
      name == "TOKENIZER" || name == "OUT.JSON" || name == "OUT.HTML") {
    completion.adds = FileNames::kAll;
  }
  if (name == "FOLDER" || name == "RUN" || name == "DIR") completion.adds = FileNames::kFolders;
  if (name == "RUN") {
    for (const std::string& run : RunFolders()) completion.candidates.push_back({run, "a run"});
  }
  if (name == "KEY") AddKeysAndTables(completion);
  if (name == "KEY=VALUE") AddAssignments(current, false, completion);
  if (name == "KEY=V1,V2") AddAssignments(current, true, completion);
  if (name == "FRAMEWORK") AddValues(*FindField("plan.framework"), "", completion);
  if (name == "OBJECTIVE") AddValues(*FindField("plan.objective"), "", completion);
  if (name == "PRESET") {
    for (const recipe::Starter& starter : recipe::Starters()) {
      completion.candidates.push_back({starter.name, starter.summary});
    }
  }
}

// The values of `option`; each is put behind `prefix` ("--dtype=").
Completion CompleteValue(const CLI::Option& option, absl::string_view prefix, absl::string_view current) {
  Completion completion;
  const std::string name = ValueName(option);
  if (absl::StartsWith(name, "{")) {
    const std::string inside = name.substr(1, name.find('}') - 1);
    for (absl::string_view word : absl::StrSplit(inside, ',', absl::SkipEmpty())) {
      completion.candidates.push_back({std::string(word), ""});
    }
  } else {
    AddNamed(absl::AsciiStrToUpper(name), current, completion);
  }
  for (CompletedWord& candidate : completion.candidates)
    candidate.text = absl::StrCat(prefix, candidate.text);
  return completion;
}

const CLI::Option* FindOption(const CLI::App& app, absl::string_view word) {
  const std::string name(word.substr(0, word.find('=')));
  return app.get_option_no_throw(name);
}

const CLI::App* FindVerb(const CLI::App& app, const std::string& name) {
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (verb->check_name(name)) return verb;
  }
  return nullptr;
}

// Where the words before the cursor lead.
struct Position {
  const CLI::App* app;
  const CLI::Option* waiting = nullptr;  // an option whose value comes next
  size_t num_positionals = 0;
  bool only_positionals = false;  // after "--"
  bool is_lost = false;           // a word where only verbs can stand, that is none
  std::vector<const CLI::Option*> given;
};

Position Walk(const CLI::App& root, const std::vector<std::string>& words) {
  Position position{&root};
  for (const std::string& word : words) {
    if (position.waiting != nullptr) {
      position.waiting = nullptr;
    } else if (!position.only_positionals && word == "--") {
      position.only_positionals = true;
    } else if (!position.only_positionals && word.size() > 1 && word[0] == '-') {
      const CLI::Option* option = FindOption(*position.app, word);
      if (option == nullptr) continue;
      position.given.push_back(option);
      if (TakesValue(*option) && !absl::StrContains(word, "=")) position.waiting = option;
    } else if (const CLI::App* verb = FindVerb(*position.app, word);
               verb != nullptr && !position.only_positionals) {
      position = Position{verb};
    } else {
      ++position.num_positionals;
      if (Positionals(*position.app).empty()) position.is_lost = true;
    }
  }
  return position;
}

void AddOptions(const Position& position, Completion& completion) {
  for (const CLI::Option* option : VisibleOptions(*position.app)) {
    const bool is_given =
        std::find(position.given.begin(), position.given.end(), option) != position.given.end();
    if (is_given && option->get_items_expected_max() <= 1) continue;
    for (const std::string& name : option->get_lnames()) {
      completion.candidates.push_back({absl::StrCat("--", name), FirstSentence(option->get_description())});
    }
    if (!option->get_lnames().empty()) continue;
    for (const std::string& name : option->get_snames()) {
      completion.candidates.push_back({absl::StrCat("-", name), FirstSentence(option->get_description())});
    }
  }
}

const char* NameOf(FileNames adds) {
  switch (adds) {
    case FileNames::kNone:
      return "none";
    case FileNames::kAll:
      return "files";
    case FileNames::kFolders:
      return "folders";
    case FileNames::kRecipes:
      return "recipes";
  }
  return "none";
}

void Print(const Completion& completion) {
  std::puts(NameOf(completion.adds));
  for (const CompletedWord& candidate : completion.candidates) {
    const std::string description = absl::StrReplaceAll(candidate.description, {{"\n", " "}, {"\t", " "}});
    std::printf("%s%s%s\n", candidate.text.c_str(), description.empty() ? "" : "\t", description.c_str());
  }
}

// "did you mean launch? " for the candidate nearest to `typed`, or nothing if none is within `max_distance`.
std::string HintOfNearest(const std::string& typed, const Completion& known, int max_distance) {
  const CompletedWord* nearest = nullptr;
  for (const CompletedWord& candidate : known.candidates) {
    const int distance = EditDistance(typed, candidate.text);
    if (distance > max_distance) continue;
    max_distance = distance - 1;
    nearest = &candidate;
  }
  return nearest == nullptr ? "" : absl::StrCat("did you mean ", nearest->text, "? ");
}

// The only option that begins with `typed` ("--temp" for --temperature), or nothing.
std::string OptionWithPrefix(const std::string& typed, const Completion& known) {
  constexpr size_t kShortest = 4;  // "--te"
  std::string found;
  for (const CompletedWord& candidate : known.candidates) {
    if (typed.size() < kShortest || !absl::StartsWith(candidate.text, typed)) continue;
    if (!found.empty()) return "";
    found = candidate.text;
  }
  return found;
}

std::string HintForOption(const CLI::App& app, const std::string& typed) {
  Completion known;
  AddOptions({&app}, known);
  if (const std::string whole = OptionWithPrefix(typed, known); !whole.empty()) {
    return absl::StrCat("did you mean ", whole, "? ");
  }
  if (app.get_name() == "resume" && (typed == "--step" || typed == "--from-step")) {
    return "a resumed run always continues from its newest checkpoint; to start from another one, launch a "
           "new run with --set model.weights=RUN/checkpoints/step-N. ";
  }
  if (FindOption(app, "--set") != nullptr) {
    const std::string key = recipe::KeyOfOption(typed);
    // In other tools, an output folder is either the folder of one run or the parent folder of all runs.
    if (key == "run.root" && FindOption(app, "--run-dir") != nullptr) {
      return "did you mean --run-dir FOLDER (for this run), or --set run.root=FOLDER (for all runs)? ";
    }
    if (!key.empty() && key != "run.root") return absl::StrCat("did you mean --set ", key, "=VALUE? ");
    const recipe::ForeignWord* const foreign = recipe::FindForeign(typed, recipe::ForeignKeys());
    if (foreign != nullptr && foreign->advice[0] != '\0') return absl::StrCat(foreign->advice, ". ");
  }
  return HintOfNearest(typed, known, std::max(2, static_cast<int>(typed.size()) / 3));
}

// A short word is near many others, and a wrong verb may do harm: `top` is one letter away from `stop`.
std::string HintForVerb(const CLI::App& app, bool is_first, const std::string& typed) {
  const recipe::ForeignWord* const foreign =
      is_first ? recipe::FindForeign(typed, recipe::ForeignVerbs()) : nullptr;
  if (foreign != nullptr && foreign->ours[0] != '\0')
    return absl::StrCat("did you mean ", foreign->ours, "? ");
  if (foreign != nullptr) return absl::StrCat(foreign->advice, ". ");
  if (typed == "list" && FindVerb(app, "ls") != nullptr) return "did you mean ls? ";
  if (!is_first && app.get_name() == "export") return "did you mean checkpoint export (for a model)? ";
  std::string nearest =
      HintOfNearest(typed, CompleteWord(app, {}, ""), std::max(1, static_cast<int>(typed.size()) / 3));
  if (is_first || !nearest.empty()) return nearest;
  const std::vector<const CLI::App*> verbs = VisibleVerbs(app);
  return absl::StrCat(
      "the verbs are ",
      absl::StrJoin(verbs, ", ",
                    [](std::string* out, const CLI::App* verb) { absl::StrAppend(out, verb->get_name()); }),
      ". ");
}

// Returns a hint for an argument of a verb that takes none. Other tools check a configuration with "doctor".
std::string HintForArgument(const CLI::App& app, const std::string& word) {
  if (app.get_name() != "doctor" || !absl::EndsWith(word, ".toml")) return "";
  return absl::StrCat("to check a recipe: trainctl recipe check ", ShellQuote(word), " --all; ");
}

// Returns a hint if `word` is a setting without an option, such as "train.steps=10", after the last
// positional. Other tools accept settings in this form. Returns an empty string otherwise.
std::string HintForAssignment(const Position& position, const std::string& word) {
  const size_t equals = word.find('=');
  size_t most = 0;
  for (const CLI::Option* positional : Positionals(*position.app))
    most += static_cast<size_t>(std::max(1, positional->get_items_expected_max()));
  if (equals == std::string::npos || position.num_positionals < most ||
      FindOption(*position.app, "--set") == nullptr) {
    return "";
  }
  const std::string key = recipe::KeyOfOption(word.substr(0, equals));
  return key.empty() ? "" : absl::StrCat("did you mean --set ", ShellQuote(key + word.substr(equals)), "? ");
}

// Returns a complaint about "--set KEY = VALUE" or "--set KEY VALUE", whose words the shell separates, or an
// empty string. `at` is the index of KEY.
std::string ComplaintOfSpaces(const CLI::Option& option, absl::Span<const std::string> words, size_t at) {
  const std::string form = ValueName(option);
  if (!absl::StartsWith(form, "KEY=") || absl::StrContains(words[at], "=") || at + 1 == words.size())
    return "";
  const std::string& next = words[at + 1];
  if (absl::StartsWith(next, "-") || absl::EndsWith(next, ".toml") || PathExists(next)) return "";
  const std::string value = !absl::StartsWith(next, "=") ? next
                            : next != "="                ? next.substr(1)
                            : at + 2 < words.size()      ? words[at + 2]
                                                         : "VALUE";
  return absl::StrCat(option.get_name(), " takes ", form, " without spaces: ", option.get_name(), " ",
                      ShellQuote(absl::StrCat(words[at], "=", value)));
}

}  // namespace

std::vector<const CLI::App*> VisibleVerbs(const CLI::App& app) {
  return app.get_subcommands(
      [](const CLI::App* verb) { return !verb->get_group().empty() && !verb->get_name().empty(); });
}

std::vector<const CLI::Option*> Positionals(const CLI::App& app) {
  return app.get_options([](const CLI::Option* option) { return option->get_positional(); });
}

std::vector<const CLI::Option*> VisibleOptions(const CLI::App& app) {
  return app.get_options(
      [](const CLI::Option* option) { return option->nonpositional() && !option->get_group().empty(); });
}

bool TakesValue(const CLI::Option& option) { return option.get_items_expected_max() > 0; }

std::string ValueName(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const size_t words = type.find('{');
  if (words != std::string::npos) return type.substr(words, type.find('}') - words + 1);
  if (option.get_positional()) return option.get_name(true);
  return type.substr(0, type.find(':'));
}

Completion CompleteWord(const CLI::App& root, const std::vector<std::string>& before,
                        absl::string_view current) {
  const Position position = Walk(root, before);
  if (position.is_lost) return {};
  if (position.waiting != nullptr) return CompleteValue(*position.waiting, "", current);
  if (absl::StartsWith(current, "-") && !position.only_positionals) {
    const size_t equals = current.find('=');
    const CLI::Option* option = FindOption(*position.app, current);
    if (equals != absl::string_view::npos && option != nullptr && TakesValue(*option)) {
      return CompleteValue(*option, current.substr(0, equals + 1), current.substr(equals + 1));
    }
    Completion completion;
    AddOptions(position, completion);
    return completion;
  }
  Completion completion;
  const std::vector<const CLI::App*> verbs = VisibleVerbs(*position.app);
  for (const CLI::App* verb : verbs)
    completion.candidates.push_back({verb->get_name(), verb->get_description()});
  if (!verbs.empty()) return completion;
  size_t taken = 0;
  for (const CLI::Option* positional : Positionals(*position.app)) {
    taken += static_cast<size_t>(std::max(1, positional->get_items_expected_max()));
    if (position.num_positionals < taken) return CompleteValue(*positional, "", current);
  }
  AddOptions(position, completion);
  return completion;
}

std::vector<std::string> SplitShellLine(absl::string_view line) {
  std::vector<std::string> words;
  std::string word;
  bool in_word = false;
  char quote = '\0';
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    const bool escapes = c == '\\' && quote != '\'' && i + 1 < line.size();
    if (escapes && (quote == '\0' || absl::StrContains("\"\\$`", line.substr(i + 1, 1)))) {
      word += line[++i];
      in_word = true;
    } else if (quote != '\0' && c == quote) {
      quote = '\0';
    } else if (quote == '\0' && (c == '\'' || c == '"')) {
      quote = c;
      in_word = true;
    } else if (quote == '\0' && absl::ascii_isspace(static_cast<unsigned char>(c))) {
      if (in_word) words.push_back(std::move(word));
      word.clear();
      in_word = false;
    } else {
      word += c;
      in_word = true;
    }
  }
  words.push_back(std::move(word));
  return words;
}

std::string UnknownWord(const CLI::App& root, const std::vector<std::string>& words) {
  std::vector<std::string> before;
  std::string path = "trainctl";
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    const Position position = Walk(root, before);
    if (position.waiting != nullptr) {
      const std::string complaint = ComplaintOfSpaces(*position.waiting, words, i);
      if (!complaint.empty()) return absl::StrCat(complaint, "; see `", path, " --help`");
    }
    const bool is_option = word.size() > 1 && word[0] == '-' && !position.only_positionals && word != "--";
    const CLI::App* const verb = is_option ? nullptr : FindVerb(*position.app, word);
    const bool is_known =
        position.waiting != nullptr || word == "--" || verb != nullptr ||
        (is_option ? FindOption(*position.app, word) != nullptr : !Positionals(*position.app).empty());
    const bool is_value = is_option || position.waiting != nullptr || verb != nullptr;
    if (const std::string hint = is_value ? "" : HintForAssignment(position, word); !hint.empty()) {
      return absl::StrCat(path, " does not take '", word.substr(0, 60), "'; ", hint, "See `", path,
                          " --help`");
    }
    if (is_known) {
      if (position.waiting == nullptr && verb != nullptr) absl::StrAppend(&path, " ", word);
      before.push_back(word);
      continue;
    }
    const std::string shown = word.substr(0, std::min<size_t>(word.find('='), 60));
    if (!is_option && VisibleVerbs(*position.app).empty()) {
      return absl::StrCat(path, " takes no arguments, but got '", word.substr(0, 60), "'; ",
                          HintForArgument(*position.app, word), "see `", path, " --help`");
    }
    const std::string hint =
        is_option ? HintForOption(*position.app, shown) : HintForVerb(*position.app, before.empty(), shown);
    return absl::StrCat("there is no ", is_option ? "option" : "verb", " '", shown, "' of ", path, "; ", hint,
                        "`", path, " --help` lists them all");
  }
  return "";
}

int PrintCompletion(const CLI::App& root, const std::vector<std::string>& arguments) {
  if (arguments.empty()) return static_cast<int>(ExitCode::kUsage);
  const bool is_bash = arguments[0] == "bash";
  if (is_bash && arguments.size() != 3) return static_cast<int>(ExitCode::kUsage);
  std::vector<std::string> words = is_bash ? SplitShellLine(arguments[1])
                                           : std::vector<std::string>(arguments.begin() + 1, arguments.end());
  if (is_bash && words.size() > 1) words.erase(words.begin());
  const std::string current = words.empty() ? "" : words.back();
  if (!words.empty()) words.pop_back();
  Completion completion = CompleteWord(root, words, current);
  if (is_bash) {
    // Only what begins with the word, and of it what comes after the '=' or ':' at which bash begins.
    const size_t cut = absl::EndsWith(current, arguments[2]) ? current.size() - arguments[2].size() : 0;
    std::vector<CompletedWord> kept;
    for (const CompletedWord& candidate : completion.candidates) {
      if (absl::StartsWith(candidate.text, current)) kept.push_back({candidate.text.substr(cut), ""});
    }
    completion.candidates = std::move(kept);
  }
  Print(completion);
  return 0;
}

}  // namespace trainctl::cli
