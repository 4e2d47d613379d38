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

// The same for rows that are printed as they come: a column is as wide as its header or `least_widths` says,
// and a longer cell moves those after it.
class RowStream {
 public:
  RowStream(std::vector<std::string> header, std::vector<size_t> left, std::vector<size_t> least_widths,
            bool color);
  void Print(const std::vector<std::string>& row);

 private:
  std::vector<size_t> widths_;
  std::vector<size_t> left_;
};

}  // namespace trainctl::cli
