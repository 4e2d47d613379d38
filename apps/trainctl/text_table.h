// Rows and columns for a terminal.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace trainctl::cli {

class TextTable {
 public:
  // Columns in `left` are aligned to the left, the others to the right.
  TextTable(std::vector<std::string> header, std::vector<size_t> left);
  // Fewer cells than columns are filled up; `bold` marks the row where colours are on.
  void Add(std::vector<std::string> row, bool bold = false);
  void Print(bool color) const;

 private:
  std::vector<std::vector<std::string>> rows_;
  std::vector<bool> bold_;
  std::vector<size_t> left_;
};

}  // namespace trainctl::cli
