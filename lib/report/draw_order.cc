#include "report/draw_order.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace trainctl::report {
namespace {

using schedule::Instruction;
using schedule::Op;

struct Cell {
  int64_t first = 0;  // columns of time
  int64_t last = 0;   // exclusive
  const Instruction* pass = nullptr;
};

// Backgrounds of F, B, I, W: blue, green, cyan, magenta; bright ones for small letters.
constexpr std::array<int, 4> kBackgrounds = {44, 42, 46, 45};

class OrderDrawing {
 public:
  OrderDrawing(const schedule::Step& step, const simulate::Played& played, const DrawOrderOptions& options)
      : step_(step), played_(played), options_(options) {}

  std::string Run() {
    const size_t num_ranks = step_.programs.size();
    cell_s_ = options_.cell_s > 0 ? options_.cell_s : ShortestPass();
    std::string text;
    if (cell_s_ > 0 && std::isfinite(played_.end_s / cell_s_)) {
      Measure();
      for (size_t r = 0; r < num_ranks; ++r) DrawRank(r, text);
    }
    DrawLegend(text);
    return text;
  }

 private:
  double ShortestPass() const {
    double shortest = 0;
    for (size_t r = 0; r < played_.classes.size(); ++r) {
      for (size_t i = 0; i < played_.classes[r].times.size(); ++i) {
        if (!RunsBlock(step_.programs[r].instructions[i].op)) continue;
        const double seconds = played_.classes[r].times[i].seconds;
        if (seconds > 0 && (shortest == 0 || seconds < shortest)) shortest = seconds;
      }
    }
    return shortest;
  }

  // Widths: as many columns of time as fit, or as there are.
  void Measure() {
    margin_ = absl::StrCat(step_.programs.size() - 1).size() + 7;  // "rank N |"
    const size_t digits = absl::StrCat(step_.placement.num_micro_batches - 1).size();
    cell_width_ = digits + 2;  // a letter or blank, the number, a blank
    const size_t width = static_cast<size_t>(std::max(options_.width, 1));
    const size_t room = width > margin_ + 1 ? (width - margin_ - 1) / cell_width_ : 0;
    const double columns = std::ceil(played_.end_s / cell_s_ - 1e-9);
    num_columns_ = columns > static_cast<double>(room) ? room : static_cast<size_t>(columns);
    clipped_ = columns > static_cast<double>(room);
  }

  int64_t Column(double seconds) const {
    // Beyond the last column nothing is drawn; the bound keeps the conversion in range.
    return static_cast<int64_t>(std::min(std::round(seconds / cell_s_), 1e15));
  }

  std::vector<Cell> CellsOf(size_t r) const {
    const std::vector<Instruction>& list = step_.programs[r].instructions;
    std::vector<Cell> cells;
    bool joins = false;
    for (size_t i = 0; i < list.size(); ++i) {
      if (!RunsBlock(list[i].op)) continue;
      const simulate::InstructionTime& time = played_.classes[r].times[i];
      Cell cell = {Column(time.begin_s), Column(time.end_s()), &list[i]};
      if (cell.first >= static_cast<int64_t>(num_columns_)) break;
      // Both of a joined pair have the interval of the two; the forward is drawn over its first third.
      const int64_t border =
          std::min(cell.first + std::max<int64_t>((cell.last - cell.first) / 3, 1), cell.last);
      if (list[i].joined) cell.last = border;
      if (joins) cell.first = border;
      joins = list[i].joined;
      cells.push_back(cell);
    }
    return cells;
  }

  bool SmallLetters(const Instruction& i) const {
    const int round = step_.StageOf(i.block) / step_.placement.num_ranks;
    return (round + step_.placement.CopyOf(i.micro_batch)) % 2 == 1;
  }

  void DrawRank(size_t r, std::string& text) const {
    const size_t digits = margin_ - 7;
    absl::StrAppendFormat(&text, "rank %*d |", static_cast<int>(digits), static_cast<int>(r));
    int64_t column = 0;
    for (const Cell& cell : CellsOf(r)) {
      const int64_t last = std::min(cell.last, static_cast<int64_t>(num_columns_));
      for (; column < cell.first; ++column) DrawIdle(text);
      if (last <= column) continue;
      DrawPass(*cell.pass, static_cast<size_t>(last - column) * cell_width_, text);
      column = last;
    }
    for (; column < static_cast<int64_t>(num_columns_); ++column) DrawIdle(text);
    if (clipped_) {
      text += '>';
    } else {
      while (text.back() == ' ') text.pop_back();
    }
    text += '\n';
  }

  void DrawIdle(std::string& text) const {
    text += '.';
    text.append(cell_width_ - 1, ' ');
  }

  void DrawPass(const Instruction& pass, size_t width, std::string& text) const {
    const bool small = SmallLetters(pass);
    const std::string number = absl::StrCat(pass.micro_batch);
    if (options_.color) {
      const int background = kBackgrounds[static_cast<size_t>(PassOf(pass.op))] + (small ? 60 : 0);
      absl::StrAppendFormat(&text, "\x1b[30;%dm%*s%s \x1b[0m", background,
                            static_cast<int>(width - number.size() - 1), "", number);
      return;
    }
    const char letter = schedule::PipelinePassLetter(PassOf(pass.op));
    std::string cell(1, small ? absl::ascii_tolower(static_cast<unsigned char>(letter)) : letter);
    cell += number;
    // A joined forward touches its backward.
    if (pass.joined) cell += '+';
    if (width > cell_width_) cell.resize(std::max(cell.size(), width - 1), '-');
    cell.resize(width, ' ');
    text += cell;
  }

  void DrawLegend(std::string& text) const {
    absl::StrAppend(&text, "F forward, B backward, I input backward, W weight backward, . idle");
    if (step_.placement.num_copies > 1) {
      absl::StrAppend(&text, "; lowercase: second copy of the model");
    } else if (step_.placement.num_stages > step_.placement.num_ranks) {
      absl::StrAppend(&text, "; lowercase: every second round of stages");
    }
    text += '\n';
  }

  const schedule::Step& step_;
  const simulate::Played& played_;
  const DrawOrderOptions& options_;
  double cell_s_ = 0;
  size_t margin_ = 0;
  size_t cell_width_ = 0;
  size_t num_columns_ = 0;
  bool clipped_ = false;
};

}  // namespace

schedule::PipelineOp PassOf(Op op) {
  switch (op) {
    case Op::kBackward:
      return schedule::PipelineOp::kBackward;
    case Op::kBackwardInput:
      return schedule::PipelineOp::kBackwardInput;
    case Op::kBackwardWeight:
      return schedule::PipelineOp::kBackwardWeight;
    default:
      return schedule::PipelineOp::kForward;
  }
}

std::string DrawOrder(const schedule::Step& step, const simulate::Played& played,
                      const DrawOrderOptions& options) {
  return OrderDrawing(step, played, options).Run();
}

}  // namespace trainctl::report
