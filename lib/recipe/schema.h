// The recipe's schema, which is defined by a single table of fields. The parser, the checks, `recipe show`,
// the stored JSON, and the reference page are all derived from it. To add an option, add a row to
// schema_fields.cc and a member to recipe.h, whose initializer is the default. Immutable; thread-safe.
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
  kCount,      // an integer that may be written as "10K" or "2M"
  kBytes,      // for example "80GB" or "512MiB"
  kBandwidth,  // bytes per second, such as "3.35TB/s", or bits, such as "400Gb/s"
  kDuration,   // for example "30m"
  kDouble,
  kString,
  kPath,  // ${VAR} is expanded and the path is made absolute
  kIntList,
  kDoubleList,
  kStringList,
  kGlobList,  // paths with wildcards, which LoadRecipe expands
  kStringMap,
};

// Whether and how a field may change when a run is resumed.
enum class Resume : uint8_t {
  // Never, because it determines the data of each step, the model, or the meaning of the stored state.
  kIdentity,
  // Only by an explicit `resume --set`, which is recorded because it affects later results.
  kBySet,
  // By `resume --set` or by editing the recipe (`launch --or-resume`).
  kFree,
};

// The suffix that marks a metrics.prometheus value as a file path.
inline constexpr char kPrometheusFileSuffix[] = ".prom";

// The intended use of a recipe, which determines how strictly it is checked.
enum class Purpose : uint8_t {
  // Training. The recipe must be complete.
  kTrain,
  // Planning for our own trainer. The data and length may be absent; LoadedRecipe::missing then lists them.
  kPlan,
  // Estimating another trainer (plan.framework). Models, degrees, and devices that ours does not support are
  // accepted.
  kWhatIf,
};

// A value that is part of the schema but that this version does not support. It is always rejected, never
// ignored.
struct Unsupported {
  std::string value;  // "*" means any value other than the default
  std::string why;
};

struct Field {
  std::string name;  // for example "train.steps" or "data.train[].files"
  Kind kind = Kind::kString;
  std::string doc;
  std::string unit;
  double min_value = -std::numeric_limits<double>::infinity();
  double max_value = std::numeric_limits<double>::infinity();
  bool above_min = false;             // whether values must be greater than min_value
  bool below_max = false;             // whether values must be less than max_value
  std::vector<std::string> choices;   // allowed values of a string; empty if any is allowed
  std::vector<std::string> keywords;  // values of a path field that are keywords, not paths
  // If not empty, only text with this suffix is treated as a path.
  std::string path_suffix;
  // Whether the first item of a list is a program, given as a path if it contains '/' and otherwise as a name
  // to look up in PATH.
  bool is_command = false;
  int list_length = 0;       // exact length of a list; 0 allows any length
  bool never_empty = false;  // whether an empty list is refused
  // Whether a list of one item may be written as just that item. It is then shown that way too.
  bool takes_one = false;
  bool allow_auto = false;
  // Whether a path is always relative to the working directory, regardless of where it was set.
  bool from_working_dir = false;
  bool is_required = false;
  Resume resume = Resume::kIdentity;
  std::vector<Unsupported> unsupported;
  std::string default_text;  // rule that describes the default, if it is not a fixed value
  // Fields in the same group exclude each other unless they also have the same alternative.
  std::string group;
  std::string alternative;
  // Access the field's value. Null for a field that is converted to others on load (train.tokens). `index`
  // selects the entry of a [[data.train]] or [[data.eval]] list and is ignored for other fields. `get`
  // returns nullopt if the field does not apply; the field is then neither shown nor stored.
  std::function<std::optional<Value>(const Recipe&, size_t index)> get;
  // The same without the conditions of Row::Where and Row::OmitEmpty; null if the field has none.
  std::function<std::optional<Value>(const Recipe&, size_t index)> get_hidden;
  std::function<void(Recipe&, size_t index, const Value&)> set;

  bool in_list() const { return name.find("[]") != std::string::npos; }
  // The list that the field belongs to: "data.train" for "data.train[].files".
  absl::string_view list_name() const { return absl::string_view(name).substr(0, name.find("[]")); }
  // Returns the field's name with the index filled in: "data.train[2].files".
  std::string PathAt(size_t index) const;
};

// Returns the rows of the table (schema_fields.cc) in display order.
std::vector<Field> AllFields();

class Schema {
 public:
  Schema();
  absl::Span<const Field> fields() const { return fields_; }
  // Returns the field called `name`, or null if there is none.
  const Field* Find(absl::string_view name) const;
  // Whether `name` is a table of fields, such as "train", "model.rope_scaling", or "data.train[]".
  bool IsTable(absl::string_view name) const;
  // Whether `name` is a list of tables, such as "data.train".
  bool IsList(absl::string_view name) const;
  // Returns the number of entries that `recipe` has in `list`, which is "data.train" or "data.eval".
  static size_t ListSize(const Recipe& recipe, absl::string_view list);
  static void ResizeList(Recipe& recipe, absl::string_view list, size_t num_entries);

 private:
  std::vector<Field> fields_;
  absl::flat_hash_map<std::string, size_t> by_name_;
  absl::flat_hash_map<std::string, bool> tables_;
};

// Returns the schema, which is created on first use.
const Schema& GetSchema();

// Returns the field name most similar to `path` (an unknown key without indices), or "" if none is similar.
std::string NearestName(absl::string_view path);

}  // namespace trainctl::recipe
