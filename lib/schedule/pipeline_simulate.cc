#include "schedule/pipeline_simulate.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace trainctl::schedule {
namespace {

class Player {
 public:
  Player(const LoweredPipeline& lowered, const PipelineCosts& costs, bool keep_intervals)
      : lowered_(lowered),
        costs_(costs),
        keep_intervals_(keep_intervals),
        ranks_(lowered.instructions.size()) {}

  absl::StatusOr<PipelineTimes> Run() {
    std::vector<size_t> ready(ranks_.size());
    for (size_t r = 0; r < ready.size(); ++r) ready[r] = ready.size() - 1 - r;
    if (keep_intervals_) {
      for (const auto& list : lowered_.instructions) times_.intervals.emplace_back(list.size());
    }
    while (!ready.empty()) {
      const size_t r = ready.back();
      ready.pop_back();
      RunRank(r, ready);
    }
    for (size_t r = 0; r < ranks_.size(); ++r) {
      if (ranks_[r].next < lowered_.instructions[r].size()) {
        return InternalError(absl::StrCat("pipeline schedule ", lowered_.name, ": rank ", r,
                                          " waits for ever at instruction ", ranks_[r].next));
      }
    }
    Summarize();
    return std::move(times_);
  }

 private:
  struct Channel {
    size_t to = 0;
    std::vector<double> arrivals_s;
    size_t num_received = 0;
    double link_free_s = 0;
    bool receiver_waits = false;
  };
  struct Rank {
    size_t next = 0;
    double now_s = 0;
    double busy_s = 0;
    double first_s = -1;
    double last_s = 0;
    int in_flight = 0;
    int peak_in_flight = 0;
    std::vector<std::pair<int, size_t>> out;  // (peer, channel)
  };

  Channel& ChannelTo(size_t from, int to) {
    for (const auto& [peer, id] : ranks_[from].out) {
      if (peer == to) return channels_[id];
    }
    ranks_[from].out.emplace_back(to, channels_.size());
    channels_.emplace_back();
    channels_.back().to = static_cast<size_t>(to);
    return channels_.back();
  }

  double PassTime(const PipelineInstruction& i) const {
    const StageCosts& stage = costs_.stages[costs_.stages.size() == 1 ? 0 : static_cast<size_t>(i.stage)];
    switch (i.op) {
      case PipelineOp::kForward:
        return stage.forward_s;
      case PipelineOp::kBackwardInput:
        return stage.input_backward_s;
      case PipelineOp::kBackwardWeight:
        return stage.weight_backward_s;
      default:
        return stage.backward_s >= 0 ? stage.backward_s : stage.input_backward_s + stage.weight_backward_s;
    }
  }

  void Keep(size_t r, size_t index, double start_s, double end_s) {
    if (keep_intervals_) times_.intervals[r][index] = {start_s, end_s};
  }

  void RunRank(size_t r, std::vector<size_t>& ready) {
    const std::vector<PipelineInstruction>& list = lowered_.instructions[r];
    Rank& rank = ranks_[r];
    for (; rank.next < list.size(); ++rank.next) {
      const PipelineInstruction& i = list[rank.next];
      if (i.op <= PipelineOp::kBackwardWeight) {
        Compute(r, list);
      } else if (i.op == PipelineOp::kSendActivation || i.op == PipelineOp::kSendGradient) {
        Send(r, i, ready);
      } else {
        Channel& channel = ChannelTo(static_cast<size_t>(i.peer), static_cast<int>(r));
        if (channel.num_received == channel.arrivals_s.size()) {
          channel.receiver_waits = true;
          return;
        }
        const double start_s = rank.now_s;
        rank.now_s = std::max(rank.now_s, channel.arrivals_s[channel.num_received++]);
        Keep(r, rank.next, start_s, rank.now_s);
      }
    }
  }

  void Compute(size_t r, const std::vector<PipelineInstruction>& list) {
    Rank& rank = ranks_[r];
    const PipelineInstruction& first = list[rank.next];
    double seconds = PassTime(first);
    CountActivations(rank, first);
    const double start_s = rank.now_s;
    if (first.joined && rank.next + 1 < list.size()) {
      const double other = PassTime(list[rank.next + 1]);
      seconds = std::max(seconds, other) + (1 - costs_.joined_overlap) * std::min(seconds, other);
      Keep(r, rank.next, start_s, start_s + seconds);
      ++rank.next;
      CountActivations(rank, list[rank.next]);
    }
    rank.now_s += seconds;
    rank.busy_s += seconds;
    if (rank.first_s < 0) rank.first_s = start_s;
    rank.last_s = rank.now_s;
    Keep(r, rank.next, start_s, rank.now_s);
  }

  static void CountActivations(Rank& rank, const PipelineInstruction& i) {
    if (i.op == PipelineOp::kForward) rank.peak_in_flight = std::max(rank.peak_in_flight, ++rank.in_flight);
    if (i.op == PipelineOp::kBackward || i.op == PipelineOp::kBackwardWeight) --rank.in_flight;
  }

  void Send(size_t r, const PipelineInstruction& i, std::vector<size_t>& ready) {
    Rank& rank = ranks_[r];
    Channel& channel = ChannelTo(r, i.peer);
    const double start_s = std::max(rank.now_s, channel.link_free_s);
    const double end_s = start_s + costs_.send_s;
    channel.link_free_s = end_s;
    channel.arrivals_s.push_back(end_s + costs_.latency_s);
    if (!costs_.overlap_sends) {
      rank.now_s = end_s;
      rank.busy_s += costs_.send_s;
      rank.last_s = end_s;
    }
    Keep(r, rank.next, start_s, end_s);
    if (channel.receiver_waits) ready.push_back(channel.to);
    channel.receiver_waits = false;
  }

  void Summarize() {
    for (const Rank& rank : ranks_) times_.makespan_s = std::max(times_.makespan_s, rank.last_s);
    for (const Rank& rank : ranks_) {
      times_.busy_s.push_back(rank.busy_s);
      times_.bubble_s.push_back(times_.makespan_s - rank.busy_s);
      times_.inner_bubble_s.push_back(rank.last_s - std::max(0.0, rank.first_s) - rank.busy_s);
      times_.peak_in_flight.push_back(rank.peak_in_flight);
    }
  }

  const LoweredPipeline& lowered_;
  const PipelineCosts& costs_;
  const bool keep_intervals_;
  std::vector<Rank> ranks_;
  std::vector<Channel> channels_;
  PipelineTimes times_;
};

double Largest(const std::vector<double>& seconds) {
  return seconds.empty() ? 0 : *std::max_element(seconds.begin(), seconds.end());
}

absl::Status CheckCosts(const LoweredPipeline& lowered, const PipelineCosts& costs) {
  const size_t num_stages = static_cast<size_t>(lowered.placement.num_stages);
  if (costs.stages.size() != 1 && costs.stages.size() != num_stages) {
    return UsageError(absl::StrCat("costs of ", costs.stages.size(), " stages for a pipeline of ", num_stages,
                                   "; give 1 or ", num_stages));
  }
  const auto bad = [](double seconds) { return !std::isfinite(seconds) || seconds < 0; };
  for (size_t s = 0; s < costs.stages.size(); ++s) {
    const StageCosts& stage = costs.stages[s];
    if (bad(stage.forward_s) || bad(stage.input_backward_s) || bad(stage.weight_backward_s) ||
        !std::isfinite(stage.backward_s)) {
      return UsageError(absl::StrCat("costs of stage ", s, " are not finite and non-negative: forward ",
                                     stage.forward_s, " s, input backward ", stage.input_backward_s,
                                     " s, weight backward ", stage.weight_backward_s, " s, backward ",
                                     stage.backward_s, " s"));
    }
  }
  if (bad(costs.send_s) || bad(costs.latency_s) || bad(costs.joined_overlap) || costs.joined_overlap > 1) {
    return UsageError(absl::StrCat("communication costs are out of range: send ", costs.send_s,
                                   " s, latency ", costs.latency_s, " s, joined overlap ",
                                   costs.joined_overlap, " (0 to 1)"));
  }
  return absl::OkStatus();
}

}  // namespace

double PipelineTimes::max_bubble_s() const { return Largest(bubble_s); }
double PipelineTimes::max_inner_bubble_s() const { return Largest(inner_bubble_s); }

absl::StatusOr<PipelineTimes> SimulatePipeline(const LoweredPipeline& lowered, const PipelineCosts& costs,
                                               bool keep_intervals) {
  TRAINCTL_RETURN_IF_ERROR(CheckCosts(lowered, costs));
  return Player(lowered, costs, keep_intervals).Run();
}

}  // namespace trainctl::schedule
