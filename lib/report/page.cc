#include "report/page.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/json.h"
#include "report/page_assets.h"
#include "report/page_text.h"

namespace trainctl::report {
namespace {

// The page counts time in whole ticks, so many to the drawn part of the step.
constexpr double kTicks = 1e7;
// What the page can hold in less than 2 MB.
constexpr int64_t kMostSpans = 60'000;
constexpr size_t kMostRanks = 128;
constexpr int64_t kMostSamples = 24'000;
// In place of a kind: several spans close together, merged.
constexpr int kSeveral = kNumSpanKinds;

double Finite(double value) { return std::isfinite(value) ? value : 0; }
int64_t Whole(double value) { return std::llround(std::clamp(Finite(value), -9e15, 9e15)); }

// One stream, as the page reads it: from the end of the span before, how long, and which.
class Spans {
 public:
  Spans(double tick_s, int64_t micro_batches) : tick_s_(tick_s), micro_batches_(micro_batches) {}

  // Spans shorter than `least` ticks that lie less than that apart become one.
  Json Encode(const Stream& stream, int64_t least) {
    Json list = Json::array();
    int64_t end = 0;
    int64_t start = -1, stop = -1, id = 0, merged = 0;
    const auto flush = [&] {
      if (start < 0) return;
      list.push_back(start - end);
      list.push_back(stop - start);
      list.push_back(merged > 1 ? -1 - kSeveral : id);
      end = stop;
      ++count_;
      start = -1;
    };
    for (const Span& span : stream.spans) {
      const int64_t from = std::max(stop, Whole(span.start_s / tick_s_));
      const int64_t to = std::max(from, Whole(span.end_s / tick_s_));
      if (start >= 0 && from - stop < least && to - from < least && stop - start < 16 * least) {
        stop = to;
        ++merged;
        continue;
      }
      flush();
      start = from;
      stop = to;
      merged = 1;
      id = IdOf(span);
    }
    flush();
    return list;
  }

  int64_t count() const { return count_; }

 private:
  int64_t IdOf(const Span& span) const {
    const int64_t kind = static_cast<int64_t>(span.kind);
    if (span.stage < 0) return -1 - kind;
    return (int64_t{span.stage} * micro_batches_ + std::max(span.micro_batch, 0)) * 16 + kind;
  }

  const double tick_s_;
  const int64_t micro_batches_;
  int64_t count_ = 0;
};

// Whether the page draws a stream: waits and exchanges follow from the passes and the stages' costs.
bool IsDrawn(const Stream& stream) { return stream.kind != StreamKind::kExchange; }

Stream WithoutWaits(const Stream& stream) {
  Stream rest = {stream.kind, stream.name, {}};
  for (const Span& span : stream.spans) {
    if (span.kind != SpanKind::kWait) rest.spans.push_back(span);
  }
  return rest;
}

// Of close samples the one with most bytes; all of them if there are few.
Json EncodeSamples(const RankPicture& rank, double tick_s, int64_t most) {
  constexpr double kUnit = 1024 * 1024;
  Json list = Json::array();
  const std::vector<MemorySample>& samples = rank.samples;
  const size_t group =
      std::max<size_t>(1, (samples.size() + static_cast<size_t>(most) - 1) / static_cast<size_t>(most));
  int64_t time = 0;
  for (size_t i = 0; i < samples.size(); i += group) {
    const size_t last = std::min(samples.size(), i + group);
    const MemorySample* highest = &samples[i];
    for (size_t k = i; k < last; ++k) {
      if (DeviceBytes(rank, samples[k]) > DeviceBytes(rank, *highest)) highest = &samples[k];
    }
    const auto push = [&](const MemorySample& sample) {
      const int64_t at = std::max(time, Whole(sample.time_s / tick_s));
      list.push_back(at - time);
      list.push_back(Whole(sample.gradient_bytes / kUnit));
      list.push_back(Whole(sample.activation_bytes / kUnit));
      list.push_back(Whole(sample.work_bytes / kUnit));
      time = at;
    };
    push(*highest);
    // What is left at the end is told whatever was in the last group.
    if (last == samples.size() && highest != &samples.back()) push(samples.back());
  }
  return list;
}

// By stage: forward, backward, recompute, then what the forward and the backward wait for: tensor, expert,
// context and data parallel ranks, of each.
Json EncodeStages(const StepPicture& step) {
  Json list = Json::array();
  for (const StagePicture& stage : step.stages) {
    const ExchangeSeconds& f = stage.in_forward;
    const ExchangeSeconds& b = stage.in_backward;
    Json row = Json::array();
    for (const double seconds : {stage.forward_s, stage.backward_s, stage.recompute_s, f.tensor, f.expert,
                                 f.context, f.data, b.tensor, b.expert, b.context, b.data}) {
      row.push_back(Finite(seconds));
    }
    list.push_back(std::move(row));
  }
  return list;
}

Json EncodeStep(const StepPicture& step, Json& notes) {
  const double tick_s = step.end_s > 0 ? step.end_s / kTicks : 1e-9;
  const size_t num_ranks = std::min(step.ranks.size(), kMostRanks);
  if (num_ranks < step.ranks.size()) {
    notes.push_back(
        absl::StrCat("Only the first ", num_ranks, " of ", step.ranks.size(), " pipeline ranks are shown."));
  }
  Json json;
  int64_t least = 0;
  bool with_sends = true;
  while (true) {
    json = Json::array();
    Spans spans(tick_s, step.num_micro_batches);
    for (size_t r = 0; r < num_ranks; ++r) {
      Json streams = Json::array();
      for (const Stream& stream : step.ranks[r].streams) {
        if (!IsDrawn(stream) || (stream.kind == StreamKind::kSend && !with_sends)) continue;
        streams.push_back({{"kind", static_cast<int>(stream.kind)},
                           {"name", stream.name},
                           {"spans", spans.Encode(WithoutWaits(stream), least)}});
      }
      json.push_back({{"streams", std::move(streams)}});
    }
    if (spans.count() <= kMostSpans) break;
    // Sends are the first thing that one can do without.
    if (with_sends) {
      with_sends = false;
    } else {
      least = std::max<int64_t>(100, least * 2);
    }
  }
  if (!with_sends)
    notes.push_back("There are too many sends between stages to show on this page; use --trace to see them.");
  if (least > 0) {
    notes.push_back(
        "The step has too many passes to show individually, so short adjacent ones are drawn as one. Use "
        "--trace to see them all.");
  }
  const int64_t samples =
      std::max<int64_t>(64, kMostSamples / static_cast<int64_t>(std::max<size_t>(1, num_ranks)));
  for (size_t r = 0; r < num_ranks; ++r) {
    const RankPicture& rank = step.ranks[r];
    json[r]["states"] = Finite(rank.state_bytes);
    json[r]["outside"] = Finite(rank.outside_bytes);
    const PeakMemory& peak = rank.peak;
    json[r]["reserve"] = Finite(peak.lost_bytes);
    json[r]["parts"] = Json::array();
    for (const double part : {peak.parameter_bytes, peak.gradient_bytes, peak.optimizer_bytes,
                              peak.activation_bytes, peak.work_bytes, peak.logit_bytes, peak.outside_bytes}) {
      json[r]["parts"].push_back(Finite(part));
    }
    json[r]["device"] = Finite(peak.device_bytes);
    json[r]["upper"] = Finite(peak.upper_bytes);
    json[r]["samples"] = EncodeSamples(rank, tick_s, samples);
  }
  Json kinds = Json::array();
  for (int kind = 0; kind < kNumSpanKinds; ++kind) {
    kinds.push_back(std::string(SpanKindName(static_cast<SpanKind>(kind))));
  }
  kinds.push_back("several passes");
  const StepTerms& terms = step.terms;
  return {{"tick_s", tick_s},
          {"end_s", Finite(step.end_s)},
          {"step_s", Finite(step.step_s)},
          {"kinds", std::move(kinds)},
          {"micro_batches", step.num_micro_batches},
          {"left_out", step.left_out_micro_batches},
          {"left_out_s", Finite(step.left_out_s)},
          {"stages", EncodeStages(step)},
          {"num_stages", step.num_stages},
          {"ranks", std::move(json)},
          {"time",
           {{"forward and backward", Finite(terms.compute_s)},
            {"recompute", Finite(terms.recompute_s)},
            {"tensor parallel", Finite(terms.tensor_s)},
            {"expert parallel", Finite(terms.expert_s)},
            {"context parallel", Finite(terms.context_s)},
            {"pipeline: bubble and transfers", Finite(terms.pipeline_s)},
            {"data parallel", Finite(terms.data_s)},
            {"optimizer", Finite(terms.optimizer_s)},
            {"copies to the host", Finite(terms.offload_s)}}}};
}

Json EncodeInput(const PageInput& input) {
  Json notes = Json::array();
  for (const std::string& note : input.notes) notes.push_back(note);
  Json json = {{"title", input.title},
               {"tokens_per_step", input.tokens_per_step},
               {"devices", input.devices},
               {"limit", Finite(input.memory_limit_bytes)},
               {"timeline", EncodeStep(input.step, notes)}};
  json["facts"] = Json::array();
  for (const PageFact& fact : input.facts) json["facts"].push_back(Json::array({fact.label, fact.value}));
  json["what_if"] = Json::array();
  for (const Alternative& row : input.what_if) {
    json["what_if"].push_back({{"name", row.name},
                               {"fits", row.fits},
                               {"bytes", Finite(row.device_bytes)},
                               {"step_s", Finite(row.step_seconds)},
                               {"reason", row.reason}});
  }
  json["pareto"] = {{"x", input.pareto.x_label}, {"y", input.pareto.y_label}, {"points", Json::array()}};
  for (const ParetoPoint& point : input.pareto.points) {
    if (!std::isfinite(point.x) || !std::isfinite(point.y)) continue;
    json["pareto"]["points"].push_back({{"name", point.name},
                                        {"x", point.x},
                                        {"y", point.y},
                                        {"front", point.on_front},
                                        {"chosen", point.chosen}});
  }
  json["constants"] = Json::array();
  for (const PageConstant& c : input.constants) {
    json["constants"].push_back(
        {{"name", c.name}, {"value", c.value}, {"source", c.source}, {"origin", c.origin}});
  }
  json["notes"] = std::move(notes);
  return json;
}

}  // namespace

std::string PlanPage(const PageInput& input) {
  // In one pass, so that nothing that is put in is taken for a place to put something.
  return absl::StrReplaceAll(kPageHtml, {{"{{title}}", EscapedHtml(input.title)},
                                         {"{{style}}", kPageCss},
                                         {"{{data}}", ScriptSafe(EncodeInput(input))},
                                         {"{{script}}", absl::StrCat(kPagePartsJs, kPageJs)}});
}

}  // namespace trainctl::report
