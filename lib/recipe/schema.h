// The recipe's schema: ONE table of fields. The parser, the checks, `recipe show`, the stored JSON
// and the reference page are all derived from it; adding an option is one row in schema_fields.cc (and a
// member in recipe.h). Defaults are the initializers of recipe.h. Immutable; thread safe.
//
//   const Field* field = GetSchema().Find("train.steps");
//   field->set(recipe, 0, Value(int64_t{100}));
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "recipe/recipe.h"

namespace trainctl::recipe {

struct Auto {
  bool operator==(const Auto&) const = default;
};

using StringMap = std::map<std::string, std::string>;
using Value = std::variant<Auto, bool, int64_t, double, std::string, absl::Duration, std::vector<int64_t>,
                           std::vector<double>, std::vector<std::string>, StringMap>;

enum class Kind : uint8_t {
  kBool,
  kInt,
  kCount,      // an integer that may be written "10K", "2M"
  kBytes,      // "80GB", "512MiB"
  kBandwidth,  // bytes/s: "3.35TB/s", or in bits "400Gb/s"
  kDuration,   // "30m"
  kDouble,
  kString,
  kPath,  // made absolute, ${VAR} expanded
  kIntList,
  kDoubleList,
  kStringList,
  kGlobList,  // paths with wildcards; expanded by LoadRecipe
  kStringMap,
};

// Whether a resumed run may read otherwise.
enum class Resume : uint8_t {
  kIdentity,  // never: it decides the data of a step, the model, or what the stored state means
  kBySet,     // by an explicit `resume --set`: it changes what is computed from then on, which is recorded
  kFree,      // also by an edited recipe (`launch --or-resume`)
};

// What a recipe is read for.
enum class Purpose : uint8_t {
  kTrain,   // everything that a run needs must be there
  kPlan,    // our own trainer's plan: data and length may be missing, LoadedRecipe::missing lists them
  kWhatIf,  // another trainer's (plan.framework): models, degrees and devices beyond ours are taken as
            // written
};

// A value that the schema knows and this version cannot honour: an error, never ignored.
struct Unsupported {
  std::string value;  // "*" = any but the default
  std::string why;
};

struct Field {
  std::string name;  // "train.steps", "data.train[].files"
  Kind kind = Kind::kString;
  std::string doc;
  std::string unit;
  double min_value = -std::numeric_limits<double>::infinity();
  double max_value = std::numeric_limits<double>::infinity();
  bool above_min = false;             // min_value itself is not allowed
  bool below_max = false;             // max_value itself is not allowed
  std::vector<std::string> choices;   // of a string: one of these
  std::vector<std::string> keywords;  // of a path: words that are not paths
  int list_length = 0;                // exact; 0 = any
  bool takes_one = false;             // a list of one may be written as its item, and is shown so
  bool allow_auto = false;
  bool from_working_dir = false;  // a path relative to the working directory, wherever it is stated
  bool is_required = false;
  Resume resume = Resume::kIdentity;
  std::vector<Unsupported> unsupported;
  std::string default_text;  // where the default is a rule and not a value
  // Fields of one group exclude each other unless they name the same alternative.
  std::string group;
  std::string alternative;
  // Null for a field that is turned into others at load (train.tokens). `index` selects the entry of
  // a [[data.train]] or [[data.eval]] list and is ignored elsewhere. get returns nullopt where the
  // field does not apply: it is then neither shown nor stored.
  std::function<std::optional<Value>(const Recipe&, size_t index)> get;
  std::function<void(Recipe&, size_t index, const Value&)> set;

  bool in_list() const { return name.find("[]") != std::string::npos; }
  // "data.train" of "data.train[].files".
  absl::string_view list_name() const { return absl::string_view(name).substr(0, name.find("[]")); }
  // The name with the index in it: "data.train[2].files".
  std::string PathAt(size_t index) const;
};

// The table itself (schema_fields.cc), in the order in which fields are shown.
std::vector<Field> AllFields();

class Schema {
 public:
  Schema();
  absl::Span<const Field> fields() const { return fields_; }
  const Field* Find(absl::string_view name) const;
  // "train", "model.rope_scaling", "data.train[]": a table that holds fields.
  bool IsTable(absl::string_view name) const;
  // "data.train": a list of tables.
  bool IsList(absl::string_view name) const;
  // Number of entries that `recipe` has in the list "data.train" or "data.eval".
  static size_t ListSize(const Recipe& recipe, absl::string_view list);
  static void ResizeList(Recipe& recipe, absl::string_view list, size_t num_entries);

 private:
  std::vector<Field> fields_;
  absl::flat_hash_map<std::string, size_t> by_name_;
  absl::flat_hash_map<std::string, bool> tables_;
};

const Schema& GetSchema();

// The name nearest to `path` (an unknown key, without indices), or "" when nothing is near.
std::string NearestName(absl::string_view path);

}  // namespace trainctl::recipe
