#include "frameworks/timeline.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "frameworks/layer_work.h"
#include "schedule/build_step.h"

namespace trainctl::frameworks {
namespace {

using report::MemorySample;
using report::Span;
using report::SpanKind;
using report::Stream;
using report::StreamKind;
using schedule::Instruction;
using schedule::Op;

SpanKind KindOf(const schedule::Program& program, const Instruction& instruction) {
  switch (instruction.op) {
    case Op::kForward:
      return SpanKind::kForward;
    case Op::kBackward:
      return SpanKind::kBackward;
    case Op::kBackwardInput:
      return SpanKind::kBackwardInput;
    case Op::kBackwardWeight:
      return SpanKind::kBackwardWeight;
    case Op::kSend: {
      const schedule::Value& sent = program.values[static_cast<size_t>(instruction.reads[0])];
      return sent.kind == schedule::ValueKind::kHidden ? SpanKind::kSendActivation : SpanKind::kSendGradient;
    }
    default:
      return SpanKind::kWait;
  }
}

// What is exposed bit by bit throughout the passes.
double SpreadSeconds(const StepParts& parts) {
  return std::max(0.0,
                  parts.price.data_seconds - parts.exposed_gather_seconds - parts.exposed_reduce_seconds);
}

void Append(Stream& stream, const Span& span) {
  if (span.end_s > span.start_s) stream.spans.push_back(span);
}

class Builder {
 public:
  Builder(const Workload& workload, const TimelineOptions& options) : w_(workload), options_(options) {}

  Timeline Run() {
    timeline_.parts = PartsOfStep(w_);
    played_ = PlayPipeline(w_, timeline_.parts, options_);
    timeline_.num_stages = played_.step.placement.num_stages;
    timeline_.num_micro_batches = w_.num_micro_batches();
    timeline_.left_out_micro_batches = played_.left_out_micro_batches;
    timeline_.data_per_forward_s = played_.data_per_forward_s;
    timeline_.data_per_backward_s = played_.data_per_backward_s;
    MergeStages();
    const StepParts& parts = timeline_.parts;
    begin_s_ = parts.exposed_gather_seconds;
    for (size_t r = 0; r < played_.step.programs.size(); ++r) {
      timeline_.ranks.emplace_back();
      AddPasses(r);
      AddMemory(r);
    }
    EndStep();
    return std::move(timeline_);
  }

 private:
  // Without a pipeline all stages are one.
  void MergeStages() {
    stages_ = timeline_.parts.stages;
    if (static_cast<int64_t>(stages_.size()) == timeline_.num_stages) return;
    StageSeconds all;
    for (const StageSeconds& stage : stages_) all.Add(stage);
    stages_ = {all};
  }

  void AddPasses(size_t r) {
    RankTimeline& rank = timeline_.ranks[r];
    rank.streams.push_back({StreamKind::kCompute, "compute", {}});
    rank.streams.push_back({StreamKind::kExchange, "exchange", {}});
    std::map<int, Stream> sends;
    const schedule::Program& program = played_.step.programs[r];
    const std::vector<Instruction>& list = program.instructions;
    const std::vector<simulate::InstructionTime>& times = played_.times.classes[r].times;
    // What is joined begins when both have what they need.
    lane_end_s_ = begin_s_;
    int joined = -1;
    for (size_t i = 0; i < list.size(); ++i) {
      if (list[i].joined) {
        joined = static_cast<int>(i);
        continue;
      }
      const Span span = SpanOf(program, list[i], times[i]);
      if (list[i].op == Op::kSend) {
        Stream& stream = sends[list[i].peer];
        stream.kind = StreamKind::kSend;
        stream.name = absl::StrCat("send to rank ", list[i].peer);
        Append(stream, span);
        if (list[i].stream == schedule::kComputeStream) lane_end_s_ = span.end_s;
      } else if (list[i].op == Op::kReceive) {
        // As long as nothing else is to be done.
        Append(rank.streams[0],
               {lane_end_s_, span.end_s, span.kind, span.stage, span.micro_batch, span.peer});
        lane_end_s_ = std::max(lane_end_s_, span.end_s);
      } else {
        AddPasses(rank, span, joined >= 0 ? &list[static_cast<size_t>(joined)] : nullptr, list[i]);
        joined = -1;
        rank.end_s = lane_end_s_ = span.end_s;
      }
    }
    for (auto& [peer, stream] : sends) {
      if (!stream.spans.empty()) rank.streams.push_back(std::move(stream));
    }
  }

  Span SpanOf(const schedule::Program& program, const Instruction& i,
              const simulate::InstructionTime& time) const {
    // A gradient at the border of two stages is named by the one above.
    const bool names_border = i.op == Op::kSend || i.op == Op::kReceive;
    const SpanKind kind = KindOf(program, i);
    return {begin_s_ + time.begin_s,
            begin_s_ + time.end_s(),
            kind,
            names_border ? StageOfMessage(program, i) : i.block,
            i.micro_batch,
            i.peer};
  }

  // The stage whose pass makes or takes what is moved.
  static int StageOfMessage(const schedule::Program& program, const Instruction& i) {
    const bool sends = i.op == Op::kSend;
    const schedule::Value& moved = program.values[static_cast<size_t>(sends ? i.reads[0] : i.writes[0])];
    const bool is_activation = moved.kind == schedule::ValueKind::kHidden;
    return is_activation == sends ? i.block - 1 : i.block;
  }

  // A pass, with the forward that is joined with it. Both have the interval of the pair; each is drawn with
  // its share of it.
  void AddPasses(RankTimeline& rank, const Span& span, const Instruction* joined, const Instruction& pass) {
    if (joined == nullptr) return AddPass(rank, span);
    const double first = PassSeconds(*joined);
    const double both = first + PassSeconds(pass);
    const double border = span.start_s + (both > 0 ? first / both : 0.5) * (span.end_s - span.start_s);
    AddPass(rank, {span.start_s, border, SpanKind::kForward, joined->block, joined->micro_batch, -1});
    AddPass(rank, {border, span.end_s, span.kind, span.stage, span.micro_batch, -1});
  }

  double PassSeconds(const Instruction& pass) const {
    return played_.costs.Of(pass.block).SecondsOf(pass.op);
  }

  void AddPass(RankTimeline& rank, const Span& pass) {
    Append(rank.streams[0], pass);
    const bool is_forward = pass.kind == SpanKind::kForward;
    const StageSeconds& stage = stages_[static_cast<size_t>(pass.stage)];
    const double exchanges = stage.tensor + stage.expert + stage.context;
    double share = 0;
    if (exchanges > 0 && pass.kind != SpanKind::kBackwardWeight) {
      // What the forward does not wait for, the backward does.
      const double whole = played_.costs.stages[static_cast<size_t>(pass.stage)].forward_s;
      const double forward =
          std::clamp((whole - played_.data_per_forward_s - stage.forward) / exchanges, 0.0, 1.0);
      share = is_forward ? forward : 1 - forward;
    }
    double end = pass.end_s;
    std::vector<Span> spans;
    for (const auto& [kind, seconds] :
         {std::pair(SpanKind::kSpread, is_forward ? played_.data_per_forward_s : played_.data_per_backward_s),
          std::pair(SpanKind::kContext, share * stage.context),
          std::pair(SpanKind::kExpert, share * stage.expert),
          std::pair(SpanKind::kTensor, share * stage.tensor)}) {
      const double start = std::max(pass.start_s, end - seconds);
      spans.push_back({start, end, kind, pass.stage, pass.micro_batch, -1});
      end = start;
    }
    for (auto span = spans.rbegin(); span != spans.rend(); ++span) Append(rank.streams[1], *span);
  }

  // ---- memory ----

  // Bytes that one micro-batch keeps in a stage. PriceMemory decides on the whole; this is for the shares.
  double KeptBytes(int64_t first_layer, int64_t num_layers) const {
    double bytes = 0;
    for (int64_t layer = first_layer; layer < first_layer + num_layers; ++layer) {
      bytes += SavedBytes(WorkOfLayer(w_, layer), w_);
    }
    // Where nothing is kept the shares are as the passes.
    return bytes > 0 ? bytes : 1;
  }

  double KeptBytesOfStage(int stage) {
    if (kept_bytes_.empty()) kept_bytes_.assign(static_cast<size_t>(timeline_.num_stages), -1);
    double& kept = kept_bytes_[static_cast<size_t>(stage)];
    if (kept >= 0) return kept;
    if (w_.mesh.pp == 1) {
      kept = KeptBytes(0, NumLayers(w_.model));
    } else {
      const LayerRange range = LayersOfStage(w_, stage);
      kept = KeptBytes(range.first, range.count);
    }
    return kept;
  }

  void AddMemory(size_t r) {
    RankTimeline& rank = timeline_.ranks[r];
    rank.memory = PriceMemoryOfRank(w_, static_cast<int64_t>(r));
    const auto part = [&](MemoryPart p) { return rank.memory.parts[static_cast<size_t>(p)]; };
    const auto& backward = rank.memory.At(MemoryMoment::kBackward);
    const auto& loss = rank.memory.At(MemoryMoment::kLoss);
    const auto& end = rank.memory.At(MemoryMoment::kEnd);
    rank.state_bytes = part(MemoryPart::kParameters) + part(MemoryPart::kOptimizer) + backward.gradients;
    rank.outside_bytes = rank.memory.device_bytes - rank.memory.allocated_bytes;
    // Where gradients come to be in the step, each backward makes its share of them.
    const double made = end.gradients - backward.gradients;
    double all_kept = 0;
    for (const Span& span : rank.streams[0].spans) {
      if (span.kind == SpanKind::kForward) all_kept += KeptBytesOfStage(span.stage);
    }
    rank.samples.push_back({});
    MemorySample now;
    double most = 0;
    for (const Span& span : rank.streams[0].spans) {
      if (span.kind > SpanKind::kBackwardWeight) continue;
      const double own = KeptBytesOfStage(span.stage);
      now.time_s = span.start_s;
      now.work_bytes = backward.work;
      if (span.kind == SpanKind::kForward) {
        now.activation_bytes += own;
        now.work_bytes = span.stage == timeline_.num_stages - 1 ? loss.work + loss.logits : 0;
      }
      most = std::max(most, now.activation_bytes);
      rank.samples.push_back(now);
      if (span.kind == SpanKind::kBackward || span.kind == SpanKind::kBackwardWeight) {
        const double share = all_kept > 0 ? made * own / all_kept : 0;
        if (share > 0 || end.work > backward.work) AddSlope(span, own, share, end.work, now, rank.samples);
        now.activation_bytes = std::max(0.0, now.activation_bytes - own);
        now.gradient_bytes += share;
      }
      now.time_s = span.end_s;
      now.work_bytes = 0;
      rank.samples.push_back(now);
    }
    const double scale = most > 0 ? backward.activations / most : 0;
    // The price frees a whole micro-batch before the end of the first stage's backward, the schedule one
    // stage of it: where a rank has several, what the end needs is cut so that the drawing stays below the
    // price.
    const double limit = rank.memory.allocated_bytes - rank.state_bytes;
    for (MemorySample& sample : rank.samples) {
      sample.activation_bytes *= scale;
      const double room = limit - sample.activation_bytes - sample.gradient_bytes;
      sample.work_bytes = std::min(sample.work_bytes, std::max(0.0, room));
    }
  }

  // A backward frees activations layer by layer, and makes gradients in their place; its end may need more
  // than its layers do.
  static void AddSlope(const Span& span, double freed, double made, double work_at_end,
                       const MemorySample& begin, std::vector<MemorySample>& samples) {
    const int steps = made > 0 ? 8 : 1;
    for (int k = 1; k <= steps; ++k) {
      const double done = static_cast<double>(k) / steps;
      MemorySample sample = begin;
      sample.time_s = span.start_s + (span.end_s - span.start_s) * 0.9 * done;
      sample.activation_bytes = std::max(0.0, begin.activation_bytes - done * freed);
      sample.gradient_bytes += done * made;
      if (k == steps) sample.work_bytes = work_at_end;
      samples.push_back(sample);
    }
  }

  // ---- data parallelism and the optimizer ----

  void EndStep() {
    const StepParts& parts = timeline_.parts;
    const double spread = played_.data_per_forward_s > 0 ? 0 : SpreadSeconds(parts);
    const double passes_end = begin_s_ + played_.times.end_s;
    const double exchanged = passes_end + parts.exposed_reduce_seconds + spread;
    for (RankTimeline& rank : timeline_.ranks) {
      Stream data = {StreamKind::kData, "data parallel", {}};
      const double gathered = std::min(parts.gather_seconds, rank.end_s);
      Append(data, {0, gathered, SpanKind::kGather, -1, -1, -1});
      // What is hidden runs beside the rank's last backwards.
      const double hidden = parts.reduce_seconds - parts.exposed_reduce_seconds;
      const double start = std::max(gathered, rank.end_s - hidden);
      const double reduced = rank.end_s + parts.exposed_reduce_seconds;
      Append(data, {start, reduced, SpanKind::kReduce, -1, -1, -1});
      Append(data, {reduced, reduced + spread, SpanKind::kSpread, -1, -1, -1});
      if (!data.spans.empty()) rank.streams.push_back(std::move(data));
      Append(rank.streams[0],
             {exchanged, exchanged + parts.price.optimizer_seconds, SpanKind::kOptimizer, -1, -1, -1});
      if (rank.streams[1].spans.empty()) rank.streams.erase(rank.streams.begin() + 1);
    }
    for (RankTimeline& rank : timeline_.ranks) {
      const auto& step = rank.memory.At(MemoryMoment::kStep);
      MemorySample sample = rank.samples.back();
      if (step.work <= 0 && sample.gradient_bytes <= 0) continue;
      sample.time_s = exchanged;
      sample.work_bytes = step.work;
      rank.samples.push_back(sample);
      rank.samples.push_back({.time_s = exchanged + parts.price.optimizer_seconds});
    }
    timeline_.end_s = exchanged + parts.price.optimizer_seconds;
    if (timeline_.left_out_micro_batches > 0) {
      timeline_.left_out_s = std::max(0.0, parts.price.step_seconds - timeline_.end_s);
    }
  }

  const Workload& w_;
  const TimelineOptions& options_;
  Timeline timeline_;
  PlayedPipeline played_;
  std::vector<StageSeconds> stages_;
  std::vector<double> kept_bytes_;
  double begin_s_ = 0;
  double lane_end_s_ = 0;  // of what the rank at work has done last
};

}  // namespace

PlayedPipeline PlayPipeline(const Workload& w, const StepParts& parts, const TimelineOptions& options) {
  PlayedPipeline played;
  played.costs = parts.pipeline;
  schedule::PipelineKind kind = w.Pipeline();
  const int64_t p = w.mesh.pp;
  const int64_t m = w.num_micro_batches();
  int64_t stages = p * w.virtual_stages;
  if (p == 1) {
    simulate::StageCosts all;
    for (const simulate::StageCosts& stage : parts.pipeline.stages) {
      all.forward_s += stage.forward_s;
      all.input_backward_s += stage.input_backward_s;
      all.weight_backward_s += stage.weight_backward_s;
    }
    // The forward waits for parameters, the backward for parameters and gradients.
    const double data = SpreadSeconds(parts) / static_cast<double>(m);
    played.data_per_forward_s = data / 3;
    played.data_per_backward_s = data - data / 3;
    all.forward_s += played.data_per_forward_s;
    all.input_backward_s += played.data_per_backward_s;
    all.backward_s = all.input_backward_s + all.weight_backward_s;
    played.costs.stages = {all};
    kind = schedule::PipelineKind::k1F1B;
    stages = 1;
  }
  // PriceTime's shortest play is the least to draw.
  const int64_t fits = std::max(options.max_passes / (2 * stages), 4 * p + m % p);
  const int64_t rounds = m > fits ? (m - fits + p - 1) / p : 0;
  played.left_out_micro_batches = std::max<int64_t>(0, std::min(rounds * p, m - (4 * p + m % p)));
  schedule::PipelineShape shape = w.PipelineShapeFor(m - played.left_out_micro_batches);
  if (p == 1) shape.virtual_stages = 1;
  const auto built = schedule::BuildPipeline(kind, shape);
  TRAINCTL_CHECK_MSG(built.ok(), built.status().message());
  auto step = schedule::ExpandOrder(*built, /*sends_on_compute=*/!played.costs.overlap_sends);
  TRAINCTL_CHECK_MSG(step.ok(), step.status().message());
  played.step = *std::move(step);
  auto times = simulate::PlayPasses(played.step, played.costs);
  TRAINCTL_CHECK_MSG(times.ok(), times.status().message());
  played.times = *std::move(times);
  return played;
}

Timeline BuildTimeline(const Workload& workload, const TimelineOptions& options) {
  return Builder(workload, options).Run();
}

}  // namespace trainctl::frameworks
