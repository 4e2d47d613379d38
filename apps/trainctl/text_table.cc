#include "apps/trainctl/text_table.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"

namespace trainctl::cli {
namespace {

// Characters of UTF-8 text; all that is shown here takes one column each.
size_t Columns(const std::string& text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

}  // namespace

TextTable::TextTable(std::vector<std::string> header, std::vector<size_t> left)
    : rows_{std::move(header)}, bold_{false}, left_(std::move(left)) {}

void TextTable::Add(std::vector<std::string> row, bool bold) {
  row.resize(rows_[0].size());
  rows_.push_back(std::move(row));
  bold_.push_back(bold);
}

void TextTable::Print(bool color) const {
  std::vector<size_t> widths(rows_[0].size(), 0);
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], Columns(row[i]));
  }
  for (size_t r = 0; r < rows_.size(); ++r) {
    std::string line;
    for (size_t i = 0; i < rows_[r].size(); ++i) {
      const std::string pad(widths[i] - Columns(rows_[r][i]), ' ');
      const bool left = std::find(left_.begin(), left_.end(), i) != left_.end();
      absl::StrAppend(&line, i == 0 ? "" : "  ", left ? rows_[r][i] : pad, left ? pad : rows_[r][i]);
    }
    while (!line.empty() && line.back() == ' ') line.pop_back();
    const char* const begin = !color ? "" : r == 0 ? "\x1b[1m" : bold_[r] ? "\x1b[1;32m" : "";
    std::printf("%s%s%s\n", begin, line.c_str(), *begin == '\0' ? "" : "\x1b[0m");
  }
}

}  // namespace trainctl::cli
