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

// `paint`: what the terminal is told before the row, or "".
void PrintRow(const std::vector<std::string>& row, const std::vector<size_t>& widths,
              const std::vector<size_t>& left, const char* paint) {
  std::string line;
  for (size_t i = 0; i < row.size(); ++i) {
    const std::string pad(widths[i] - std::min(widths[i], Columns(row[i])), ' ');
    const bool is_left = std::find(left.begin(), left.end(), i) != left.end();
    absl::StrAppend(&line, i == 0 ? "" : "  ", is_left ? row[i] : pad, is_left ? pad : row[i]);
  }
  while (!line.empty() && line.back() == ' ') line.pop_back();
  std::printf("%s%s%s\n", paint, line.c_str(), *paint == '\0' ? "" : "\x1b[0m");
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
    PrintRow(rows_[r], widths, left_, !color ? "" : r == 0 ? "\x1b[1m" : bold_[r] ? "\x1b[1;32m" : "");
  }
}

RowStream::RowStream(std::vector<std::string> header, std::vector<size_t> left,
                     std::vector<size_t> least_widths, bool color)
    : widths_(std::move(least_widths)), left_(std::move(left)) {
  widths_.resize(header.size(), 0);
  for (size_t i = 0; i < header.size(); ++i) widths_[i] = std::max(widths_[i], Columns(header[i]));
  PrintRow(header, widths_, left_, color ? "\x1b[1m" : "");
}

void RowStream::Print(const std::vector<std::string>& row) {
  PrintRow(row, widths_, left_, "");
  std::fflush(stdout);
}

}  // namespace trainctl::cli
