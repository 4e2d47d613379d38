#include "recipe/show.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/json.h"
#include "recipe/describe.h"
#include "recipe/recipe_json.h"
#include "recipe/schema.h"
#include "recipe/values.h"

namespace trainctl::recipe {
namespace {

constexpr size_t kCommentColumn = 44;

std::string TableOf(const std::string& path) {
  const size_t dot = path.rfind('.');
  return dot == std::string::npos ? "" : path.substr(0, dot);
}

std::string LeafOf(const std::string& path) { return path.substr(path.rfind('.') + 1); }

class TomlWriter {
 public:
  // `paths`: null for all fields.
  TomlWriter(const LoadedRecipe& loaded, const std::set<std::string>* paths)
      : loaded_(loaded),
        paths_(paths),
        dimensions_say_all_(model::WhyNotTrainable(loaded.recipe.model.spec).empty()) {}

  std::string Run() {
    // A table ends where the next begins, so plain fields of a table come before its sub-tables.
    std::vector<const Field*> plain;
    std::vector<const Field*> nested;
    std::string top;
    for (const Field& field : GetSchema().fields()) {
      const std::string field_top = field.name.substr(0, field.name.find('.'));
      if (field_top != top) {
        Flush(plain, nested);
        top = field_top;
      }
      const bool is_plain = std::count(field.name.begin(), field.name.end(), '.') <= 1 && !field.in_list() &&
                            field.kind != Kind::kStringMap;
      (is_plain ? plain : nested).push_back(&field);
    }
    Flush(plain, nested);
    for (const std::string& note : loaded_.notes) absl::StrAppend(&text_, "# ", note, "\n");
    return text_;
  }

 private:
  void Flush(std::vector<const Field*>& plain, std::vector<const Field*>& nested) {
    for (const Field* field : plain) WriteField(*field, 0);
    for (size_t i = 0; i < nested.size(); ++i) {
      const Field& field = *nested[i];
      if (field.kind == Kind::kStringMap) {
        WriteMap(field);
      } else if (!field.in_list()) {
        WriteField(field, 0);
      } else if (i == 0 || nested[i - 1]->list_name() != field.list_name()) {
        WriteList(std::string(field.list_name()));
      }
    }
    plain.clear();
    nested.clear();
  }

  void WriteList(const std::string& list) {
    for (size_t i = 0; i < Schema::ListSize(loaded_.recipe, list); ++i) {
      absl::StrAppend(&text_, "\n[[", list, "]]\n");
      table_ = absl::StrCat(list, "[", i, "]");
      for (const Field& field : GetSchema().fields()) {
        if (field.in_list() && field.list_name() == list) WriteField(field, i);
      }
    }
  }

  void WriteMap(const Field& field) {
    const std::optional<Value> value = field.get(loaded_.recipe, 0);
    for (const auto& [key, text] : std::get<StringMap>(*value)) {
      const std::string path = absl::StrCat(field.name, ".", key);
      if (!IsWanted(path)) continue;
      Open(field.name);
      Line(absl::StrCat(key, " = ", QuoteToml(text)), path);
    }
  }

  void WriteField(const Field& field, size_t index) {
    if (!field.get) return;
    const ModelConfig& model = loaded_.recipe.model;
    // The preset or folder has said it.
    if (field.name == "model.family" && !(model.preset.empty() && model.from.empty())) return;
    const bool is_dimension = field.name.rfind("model.", 0) == 0 && field.group != "model";
    if (is_dimension && !dimensions_say_all_ && loaded_.stated.count(field.name) == 0) return;
    if (field.name == "train.steps" && loaded_.recipe.train.steps == 0) return;
    const std::optional<Value> value = field.get(loaded_.recipe, index);
    if (!value.has_value()) return;
    const std::string path = field.PathAt(index);
    if (!IsWanted(path)) return;
    Open(TableOf(path));
    Line(absl::StrCat(LeafOf(path), " = ", ToTomlText(field, *value)), path);
  }

  bool IsWanted(const std::string& path) const { return paths_ == nullptr || paths_->count(path) > 0; }

  void Open(const std::string& table) {
    if (table == table_) return;
    table_ = table;
    absl::StrAppend(&text_, text_.empty() ? "" : "\n", "[", table, "]\n");
  }

  void Line(const std::string& assignment, const std::string& path) {
    const auto origin = loaded_.origin.find(path);
    std::string line = assignment;
    if (origin != loaded_.origin.end()) {
      if (line.size() < kCommentColumn) line.resize(kCommentColumn, ' ');
      absl::StrAppend(&line, "  # ");
      // A line break in a file's name would end the comment.
      for (const char c : origin->second)
        line += absl::ascii_iscntrl(static_cast<unsigned char>(c)) ? '?' : c;
    }
    absl::StrAppend(&text_, line, "\n");
  }

  const LoadedRecipe& loaded_;
  const std::set<std::string>* paths_;
  const bool dimensions_say_all_;  // of the model; else the preset or folder says the rest
  std::string text_;
  std::string table_;
};

const char* ResumeCell(Resume resume) {
  return resume == Resume::kFree ? "yes" : resume == Resume::kBySet ? "`--set`" : "no";
}

std::string ReferenceRow(const Field& field) {
  std::string doc = field.doc;
  if (!field.unit.empty()) absl::StrAppend(&doc, " Unit: ", field.unit, ".");
  for (const Unsupported& unsupported : field.unsupported) {
    absl::StrAppend(&doc, " ", UnsupportedText(unsupported));
  }
  return absl::StrCat("| `", LeafOf(field.name), "` | ", Describe(field), " | ", DefaultText(field), " | ",
                      ResumeCell(field.resume), " | ", doc, " |\n");
}

constexpr char kReferenceHead[] = R"(# Recipe reference

<!-- Generated by `trainctl recipe reference` and checked by a test. Edit lib/recipe/schema_fields.cc instead. -->

A recipe is a TOML file. Every field has a default except the model, the data and the length of the run.

- Values are layered: built-in defaults first, then the files listed in `extends`, in order, then the recipe itself, then
  `--set`. Later layers override earlier ones; tables merge, and lists are replaced. Environment variables never override a recipe.
- `extends` is a path (`extends = "base.toml"`) or a list of paths, relative to the file that contains it.
- `--set key=value` (`--set train.steps=50 --set 'data.train[0].weight=0.5'`) parses the value according to the field's
  type. Text needs no quotes, lists and tables are written in TOML, and `key=default` restores the default.
- Some fields exclude each other: steps, tokens and epochs; batch_sequences and batch_tokens; preset, from and family.
  Setting two of them in the same layer is an error; otherwise the later layer wins.
- Counts can be abbreviated in quotes with decimal suffixes: `10K`, `2M`, `100B`, `1T`. Sizes (`"80GB"`, `"512MiB"`),
  bandwidths (`"3.35TB/s"` in bytes, `"400Gb/s"` in bits) and durations (`"250ms"`, `"3s"`, `"30m"`, `"2h"`) need a unit.
- A relative path is relative to the file that contains it, or to the working directory if given with `--set`. `${VAR}` is
  expanded only in paths, and an undefined variable is an error. In `files`, the value of a variable is taken literally:
  `*` and `[` match only themselves.
- `"auto"` is allowed if the type says so. The value it resolves to is printed and stored.
- The "resume" column says whether a resumed run may change the field. "yes" allows `trainctl resume --set` or an edited
  recipe with `launch --or-resume`. "`--set`" allows only `trainctl resume --set`, which is recorded in the run's journal
  and marked on its curves.

)";

}  // namespace

std::string ToToml(const LoadedRecipe& loaded) { return TomlWriter(loaded, nullptr).Run(); }

std::string ToToml(const LoadedRecipe& loaded, const std::set<std::string>& paths) {
  return TomlWriter(loaded, &paths).Run();
}

std::string ToShowJson(const LoadedRecipe& loaded) {
  Json root = Json::object();
  root["schema"] = "trainctl.recipe-show.v1";
  const absl::StatusOr<Json> recipe = ParseJson(ToJson(loaded.recipe), "recipe");
  if (recipe.ok()) root["recipe"] = *recipe;
  root["origin"] = Json::object();
  for (const auto& [path, origin] : loaded.origin) root["origin"][path] = origin;
  root["notes"] = loaded.notes;
  return FormatJson(root, 2) + "\n";
}

std::string ReferencePage() {
  std::string page = kReferenceHead;
  std::string section = "-";
  for (const Field& field : GetSchema().fields()) {
    const std::string table = TableOf(field.name);
    if (table != section) {
      section = table;
      std::string title = absl::StrCat("`[", section, "]`");
      if (section.empty()) title = "Top level";
      if (field.in_list()) title = absl::StrCat("`[[", field.list_name(), "]]`");
      absl::StrAppend(&page, page.size() > sizeof(kReferenceHead) ? "\n" : "", "## ", title,
                      "\n\n| field | type | default | resume | meaning |\n|---|---|---|---|---|\n");
    }
    absl::StrAppend(&page, ReferenceRow(field));
  }
  return page;
}

}  // namespace trainctl::recipe
