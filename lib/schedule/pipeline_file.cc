#include "schedule/pipeline_file.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status.h"

namespace trainctl::schedule {
namespace {

constexpr absl::string_view kOverlap = "OVERLAP_F_B";

class Reader {
 public:
  Reader(absl::string_view text, absl::string_view name) : text_(text), name_(name) {}

  absl::StatusOr<PipelineSchedule> Run() {
    schedule_.name = std::string(name_);
    std::vector<absl::string_view> lines = absl::StrSplit(text_, '\n');
    while (!lines.empty() && absl::StripAsciiWhitespace(lines.back()).empty()) lines.pop_back();
    if (lines.empty()) return BadDataError(absl::StrCat(name_, ": is empty; a line per rank is wanted"));
    for (size_t i = 0; i < lines.size(); ++i) {
      line_ = i;
      schedule_.actions.emplace_back();
      positions_.emplace_back();
      TRAINCTL_RETURN_IF_ERROR(ReadLine(lines[i]));
    }
    TRAINCTL_RETURN_IF_ERROR(FindPlaces());
    TRAINCTL_RETURN_IF_ERROR(CheckPasses());
    TRAINCTL_RETURN_IF_ERROR(Place());
    return std::move(schedule_);
  }

 private:
  template <typename... Args>
  absl::Status Fail(size_t line, size_t column, const Args&... reason) const {
    return BadDataError(absl::StrCat(name_, ":", line + 1, ":", column + 1, ": ", reason...));
  }
  template <typename... Args>
  absl::Status FailAt(absl::string_view token, const Args&... reason) const {
    return Fail(line_, static_cast<size_t>(token.data() - line_start_), reason...);
  }

  // A token as it may stand in a message.
  static std::string Quote(absl::string_view token) {
    std::string text;
    for (char c : token.substr(0, 40)) text += absl::ascii_isprint(static_cast<unsigned char>(c)) ? c : '?';
    return absl::StrCat("'", text, token.size() > 40 ? "..." : "", "'");
  }

  absl::Status ReadLine(absl::string_view line) {
    line_start_ = line.data();
    for (absl::string_view cell : absl::StrSplit(line, ',')) {
      cell = absl::StripAsciiWhitespace(cell);
      if (cell.empty()) continue;
      if (cell[0] == '(') {
        TRAINCTL_RETURN_IF_ERROR(ReadPair(cell));
      } else {
        TRAINCTL_RETURN_IF_ERROR(ReadPass(cell, false));
      }
    }
    if (schedule_.actions.back().empty()) return FailAt(line, "a rank without a pass");
    return absl::OkStatus();
  }

  absl::Status ReadPair(absl::string_view cell) {
    const size_t semicolon = cell.find(';');
    const size_t end = cell.find(')');
    if (end == absl::string_view::npos || semicolon == absl::string_view::npos || semicolon > end ||
        cell.substr(end + 1) != kOverlap) {
      return FailAt(cell, Quote(cell), " is not of the form (0F8;7B4)", kOverlap);
    }
    const absl::string_view forward = absl::StripAsciiWhitespace(cell.substr(1, semicolon - 1));
    const absl::string_view backward =
        absl::StripAsciiWhitespace(cell.substr(semicolon + 1, end - semicolon - 1));
    TRAINCTL_RETURN_IF_ERROR(ReadPass(forward, true));
    TRAINCTL_RETURN_IF_ERROR(ReadPass(backward, false));
    const std::vector<PipelineAction>& actions = schedule_.actions.back();
    const PipelineOp first = actions[actions.size() - 2].op;
    const PipelineOp second = actions.back().op;
    if (first != PipelineOp::kForward ||
        (second != PipelineOp::kBackward && second != PipelineOp::kBackwardInput)) {
      return FailAt(cell, Quote(cell), " is not a forward and a backward");
    }
    return absl::OkStatus();
  }

  absl::Status ReadPass(absl::string_view token, bool joined) {
    size_t letter = 0;
    while (letter < token.size() && absl::ascii_isdigit(static_cast<unsigned char>(token[letter]))) ++letter;
    constexpr absl::string_view kLetters = "FBIW";
    const size_t op = letter < token.size() ? kLetters.find(token[letter]) : absl::string_view::npos;
    PipelineAction action;
    if (op == absl::string_view::npos || !absl::SimpleAtoi(token.substr(0, letter), &action.stage) ||
        !IsNumber(token.substr(letter + 1)) ||
        !absl::SimpleAtoi(token.substr(letter + 1), &action.micro_batch)) {
      const bool other =
          token.find("SEND") != absl::string_view::npos || token.find("RECV") != absl::string_view::npos ||
          token.find("SHARD") != absl::string_view::npos || token.find("REDUCE") != absl::string_view::npos;
      return FailAt(token, Quote(token),
                    other ? " is communication; give the compute-only file"
                          : " is not a pass: stage, one of F, B, I, W, micro-batch, such as 3F0");
    }
    action.op = static_cast<PipelineOp>(op);
    action.joined = joined;
    schedule_.actions.back().push_back(action);
    positions_.back().push_back(static_cast<size_t>(token.data() - line_start_));
    return absl::OkStatus();
  }

  static bool IsNumber(absl::string_view digits) {
    return !digits.empty() && std::all_of(digits.begin(), digits.end(), [](char c) {
      return absl::ascii_isdigit(static_cast<unsigned char>(c));
    });
  }

  // Numbers of stages and micro-batches, from the largest seen; checked before anything is sized by them.
  absl::Status FindPlaces() {
    int64_t stages = 0;
    int64_t micro_batches = 0;
    int64_t forwards = 0;
    for (const std::vector<PipelineAction>& actions : schedule_.actions) {
      for (const PipelineAction& action : actions) {
        stages = std::max(stages, int64_t{action.stage} + 1);
        micro_batches = std::max(micro_batches, int64_t{action.micro_batch} + 1);
        forwards += action.op == PipelineOp::kForward ? 1 : 0;
      }
    }
    // Without forwards a single stage and micro-batch would do; they come to nothing below.
    if (forwards == 0 || stages > forwards || micro_batches > forwards ||
        stages * micro_batches != forwards) {
      return BadDataError(absl::StrCat(name_, ": has ", forwards, " forwards; ", stages, " stages and ",
                                       micro_batches, " micro-batches need one for each pair"));
    }
    schedule_.placement.num_ranks = static_cast<int>(schedule_.actions.size());
    schedule_.placement.num_stages = static_cast<int>(stages);
    schedule_.placement.num_micro_batches = static_cast<int>(micro_batches);
    return absl::OkStatus();
  }

  size_t Index(const PipelineAction& action) const {
    return static_cast<size_t>(action.stage) * static_cast<size_t>(schedule_.placement.num_micro_batches) +
           static_cast<size_t>(action.micro_batch);
  }

  // No pass twice; B becomes I where there is a W.
  absl::Status CheckPasses() {
    const size_t pairs = static_cast<size_t>(schedule_.placement.num_stages) *
                         static_cast<size_t>(schedule_.placement.num_micro_batches);
    std::vector<uint8_t> seen(pairs, 0);
    rank_of_.assign(pairs, -1);
    for (size_t r = 0; r < schedule_.actions.size(); ++r) {
      for (size_t i = 0; i < schedule_.actions[r].size(); ++i) {
        const PipelineAction& action = schedule_.actions[r][i];
        const unsigned bit = 1u << static_cast<unsigned>(action.op);
        uint8_t& passes = seen[Index(action)];
        if (passes & bit) {
          return Fail(r, positions_[r][i], DescribePass(action.op, action.stage, action.micro_batch),
                      " is there a second time");
        }
        passes = static_cast<uint8_t>(passes | bit);
        if (action.op == PipelineOp::kForward) rank_of_[Index(action)] = static_cast<int>(r);
      }
    }
    const unsigned weight = 1u << static_cast<unsigned>(PipelineOp::kBackwardWeight);
    const unsigned input = 1u << static_cast<unsigned>(PipelineOp::kBackwardInput);
    for (std::vector<PipelineAction>& actions : schedule_.actions) {
      for (PipelineAction& action : actions) {
        if (action.op != PipelineOp::kBackward) continue;
        const unsigned passes = seen[Index(action)];
        if ((passes & weight) && !(passes & input)) action.op = PipelineOp::kBackwardInput;
      }
    }
    return absl::OkStatus();
  }

  // All micro-batches of a stage on one rank, or their halves on one rank each.
  absl::Status Place() {
    PipelinePlacement& place = schedule_.placement;
    const size_t m = static_cast<size_t>(place.num_micro_batches);
    const auto of = [&](size_t stage, size_t micro_batch) { return rank_of_[stage * m + micro_batch]; };
    const size_t num_stages = static_cast<size_t>(place.num_stages);
    for (size_t stage = 0; stage < num_stages; ++stage) {
      if (of(stage, 0) != of(stage, m - 1)) place.num_copies = 2;
    }
    place.stage_ranks.assign(num_stages * static_cast<size_t>(place.num_copies), 0);
    for (size_t stage = 0; stage < num_stages; ++stage) {
      place.stage_ranks[stage] = of(stage, 0);
      if (place.num_copies == 2) place.stage_ranks[num_stages + stage] = of(stage, m - 1);
    }
    for (size_t r = 0; r < schedule_.actions.size(); ++r) {
      for (size_t i = 0; i < schedule_.actions[r].size(); ++i) {
        const PipelineAction& action = schedule_.actions[r][i];
        const int home = place.RankOf(action.stage, action.micro_batch);
        if (home == static_cast<int>(r)) continue;
        return Fail(r, positions_[r][i], DescribePass(action.op, action.stage, action.micro_batch),
                    " stands on line ", r + 1, " (rank ", r, "), other passes of that stage on line ",
                    home + 1);
      }
    }
    return absl::OkStatus();
  }

  const absl::string_view text_;
  const absl::string_view name_;
  size_t line_ = 0;
  const char* line_start_ = nullptr;
  PipelineSchedule schedule_;
  std::vector<std::vector<size_t>> positions_;  // column of each action
  std::vector<int> rank_of_;                    // of the forward, by stage and micro-batch
};

void Append(std::string& text, const PipelineAction& action) {
  absl::StrAppend(&text, action.stage);
  text += PipelinePassLetter(action.op);
  absl::StrAppend(&text, action.micro_batch);
}

}  // namespace

absl::StatusOr<PipelineSchedule> ReadPipeline(absl::string_view text, absl::string_view name) {
  return Reader(text, name).Run();
}

absl::StatusOr<PipelineSchedule> ReadPasses(const std::vector<std::string>& lines) {
  return ReadPipeline(absl::StrJoin(lines, "\n"), "passes");
}

std::string WritePipeline(const PipelineSchedule& schedule) {
  std::string text;
  for (const std::vector<PipelineAction>& actions : schedule.actions) {
    for (size_t i = 0; i < actions.size(); ++i) {
      if (i > 0) text += ',';
      if (actions[i].joined && i + 1 < actions.size()) {
        text += '(';
        Append(text, actions[i]);
        text += ';';
        Append(text, actions[++i]);
        absl::StrAppend(&text, ")", kOverlap);
      } else {
        Append(text, actions[i]);
      }
    }
    text += '\n';
  }
  return text;
}

}  // namespace trainctl::schedule
