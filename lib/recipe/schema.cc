#include "recipe/schema.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/names.h"
#include "base/status.h"

namespace trainctl::recipe {
namespace {

std::vector<DataSource>& Sources(Recipe& recipe, absl::string_view list) {
  TRAINCTL_CHECK(list == "data.train" || list == "data.eval");
  return list == "data.train" ? recipe.data.train : recipe.data.eval;
}

absl::string_view Leaf(absl::string_view name) {
  const size_t dot = name.rfind('.');
  return dot == absl::string_view::npos ? name : name.substr(dot + 1);
}

}  // namespace

std::string Field::PathAt(size_t index) const {
  return in_list() ? absl::StrReplaceAll(name, {{"[]", absl::StrCat("[", index, "]")}}) : name;
}

Schema::Schema() : fields_(AllFields()) {
  for (size_t i = 0; i < fields_.size(); ++i) {
    const std::string& name = fields_[i].name;
    TRAINCTL_CHECK_MSG(by_name_.emplace(name, i).second, "two rows for ", name);
    for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
      tables_[name.substr(0, dot)] = true;
    }
  }
}

const Field* Schema::Find(absl::string_view name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : &fields_[it->second];
}

bool Schema::IsTable(absl::string_view name) const { return tables_.contains(name); }

bool Schema::IsList(absl::string_view name) const { return tables_.contains(absl::StrCat(name, "[]")); }

size_t Schema::ListSize(const Recipe& recipe, absl::string_view list) {
  return Sources(const_cast<Recipe&>(recipe), list).size();
}

void Schema::ResizeList(Recipe& recipe, absl::string_view list, size_t num_entries) {
  Sources(recipe, list).resize(num_entries);
}

const Schema& GetSchema() {
  static const Schema* const schema = new Schema();
  return *schema;
}

std::string NearestName(absl::string_view path) {
  // A key far longer than every name is near none of them, and would only cost time.
  if (path.size() > 100) return "";
  std::string best;
  int best_distance = std::max(2, static_cast<int>(Leaf(path).size()) / 3) + 1;
  const auto consider = [&](const std::string& name) {
    // The right key in the wrong table is one step away.
    const int distance = Leaf(name) == Leaf(path) ? 1 : EditDistance(path, name);
    if (distance < best_distance) {
      best_distance = distance;
      best = name;
    }
  };
  for (const Field& field : GetSchema().fields()) {
    consider(field.name);
    for (size_t dot = field.name.find('.'); dot != std::string::npos; dot = field.name.find('.', dot + 1)) {
      consider(field.name.substr(0, dot));
    }
  }
  return best;
}

}  // namespace trainctl::recipe
