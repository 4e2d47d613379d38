#include "telemetry/step_trace.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/files.h"
#include "base/json.h"
#include "base/lock_owner.h"
#include "base/status.h"

namespace trainctl::telemetry {
namespace {

constexpr char kBootIdPath[] = "/proc/sys/kernel/random/boot_id";
constexpr int64_t kMaxTraceBytes = int64_t{1} << 30;
constexpr int kFirstThread = 1;  // 0 stands for the process as a whole
constexpr int kMaxRank = 1 << 20;
constexpr int kPredictedProcess = kMaxRank;  // behind all ranks

int64_t Nanoseconds(clockid_t clock) {
  timespec now = {};
  ::clock_gettime(clock, &now);
  return static_cast<int64_t>(now.tv_sec) * 1000000000 + now.tv_nsec;
}

std::string Micros(int64_t nanoseconds) {
  return absl::StrFormat("%s%d.%03d", nanoseconds < 0 ? "-" : "", std::abs(nanoseconds) / 1000,
                         std::abs(nanoseconds) % 1000);
}

std::string Quoted(absl::string_view text) { return FormatAsciiJson(Json(std::string(text))); }

// Two machines have the same clock when they are one, and were not started anew in between.
std::string BootId() {
  const absl::StatusOr<std::string> id = ReadFile(kBootIdPath, 4096);
  return id.ok() ? std::string(absl::StripAsciiWhitespace(*id)) : "";
}

// The list of events.
class EventWriter {
 public:
  void Process(int pid, absl::string_view name, const std::vector<std::string>& streams) {
    Metadata(pid, 0, "process_name", absl::StrCat("\"name\":", Quoted(name)));
    Metadata(pid, 0, "process_sort_index", absl::StrCat("\"sort_index\":", pid));
    for (size_t s = 0; s < streams.size(); ++s) {
      const int tid = kFirstThread + static_cast<int>(s);
      Metadata(pid, tid, "thread_name", absl::StrCat("\"name\":", Quoted(streams[s])));
      Metadata(pid, tid, "thread_sort_index", absl::StrCat("\"sort_index\":", s));
    }
  }

  void Span(int pid, int stream, int64_t begin_ns, int64_t end_ns, absl::string_view name) {
    absl::StrAppend(&text_, Separator(), "{\"ph\":\"X\",\"pid\":", pid, ",\"tid\":", kFirstThread + stream,
                    ",\"ts\":", Micros(begin_ns),
                    ",\"dur\":", Micros(std::max<int64_t>(end_ns - begin_ns, 0)), ",\"name\":", Quoted(name),
                    "}");
  }

  const std::string& text() const { return text_; }

 private:
  void Metadata(int pid, int tid, absl::string_view what, absl::string_view args) {
    absl::StrAppend(&text_, Separator(), "{\"ph\":\"M\",\"pid\":", pid, ",\"tid\":", tid, ",\"name\":\"",
                    what, "\",\"args\":{", args, "}}");
  }
  const char* Separator() const { return text_.empty() ? "\n" : ",\n"; }

  std::string text_;
};

// ---- reading ---------------------------------------------------------------------------------

struct ReadSpan {
  std::string name;
  int stream = 0;
  int64_t begin_ns = 0;  // from the step's begin on that rank
  int64_t end_ns = 0;
};

struct RankTrace {
  int64_t step = 0;
  int rank = 0;
  int world_size = 0;
  std::string host;
  std::string boot_id;
  int64_t monotonic_ns = 0;
  int64_t unix_ns = 0;
  std::vector<std::string> streams;
  std::vector<ReadSpan> spans;
};

absl::Status ReadStreams(const Json& json, const std::string& path, RankTrace& trace) {
  const auto found = json.find("streams");
  if (found == json.end() || !found->is_array() || found->empty()) {
    return BadDataError(absl::StrCat(path, ": field 'streams' is missing or not a list"));
  }
  for (const Json& name : *found) {
    if (!name.is_string())
      return BadDataError(absl::StrCat(path, ": field 'streams' has something but names"));
    trace.streams.push_back(name.get<std::string>());
  }
  return absl::OkStatus();
}

absl::Status ReadSpans(const Json& json, const std::string& path, RankTrace& trace) {
  const auto found = json.find("traceEvents");
  if (found == json.end() || !found->is_array()) {
    return BadDataError(absl::StrCat(path, ": field 'traceEvents' is missing or not a list"));
  }
  constexpr double kLongest_us = 1e12;  // days: far from what nanoseconds in 64 bits hold
  for (size_t i = 0; i < found->size(); ++i) {
    const Json& event = (*found)[i];
    const std::string where = absl::StrCat(path, ": event ", i);
    TRAINCTL_ASSIGN_OR_RETURN(const std::string kind, JsonString(event, "ph", where));
    if (kind != "X") continue;
    ReadSpan span;
    TRAINCTL_ASSIGN_OR_RETURN(span.name, JsonString(event, "name", where));
    TRAINCTL_ASSIGN_OR_RETURN(const int64_t tid, JsonInt(event, "tid", where));
    TRAINCTL_ASSIGN_OR_RETURN(const double begin_us, JsonDouble(event, "ts", where));
    TRAINCTL_ASSIGN_OR_RETURN(const double duration_us, JsonDouble(event, "dur", where));
    if (tid < kFirstThread || tid >= kFirstThread + static_cast<int64_t>(trace.streams.size())) {
      return BadDataError(
          absl::StrCat(where, ": tid ", tid, " is none of the ", trace.streams.size(), " streams"));
    }
    if (!(std::abs(begin_us) < kLongest_us && duration_us >= 0 && duration_us < kLongest_us)) {
      return BadDataError(
          absl::StrCat(where, ": ts ", begin_us, " with dur ", duration_us, " is no time of a step"));
    }
    span.stream = static_cast<int>(tid) - kFirstThread;
    span.begin_ns = std::llround(begin_us * 1e3);
    span.end_ns = span.begin_ns + std::llround(duration_us * 1e3);
    trace.spans.push_back(std::move(span));
  }
  return absl::OkStatus();
}

absl::StatusOr<RankTrace> ReadTrace(const std::string& path) {
  TRAINCTL_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxTraceBytes));
  TRAINCTL_ASSIGN_OR_RETURN(const Json json, ParseJson(text, path));
  TRAINCTL_ASSIGN_OR_RETURN(const std::string schema, JsonString(json, "schema", path));
  if (schema != kTraceSchema) {
    return BadDataError(absl::StrCat(path, ": schema ", schema, ", this program reads ", kTraceSchema));
  }
  RankTrace trace;
  TRAINCTL_ASSIGN_OR_RETURN(trace.step, JsonInt(json, "step", path));
  TRAINCTL_ASSIGN_OR_RETURN(const int64_t rank, JsonInt(json, "rank", path));
  TRAINCTL_ASSIGN_OR_RETURN(const int64_t world_size, JsonInt(json, "world_size", path));
  if (rank < 0 || world_size <= rank || world_size > kMaxRank) {
    return BadDataError(absl::StrCat(path, ": rank ", rank, " of ", world_size));
  }
  trace.rank = static_cast<int>(rank);
  trace.world_size = static_cast<int>(world_size);
  TRAINCTL_ASSIGN_OR_RETURN(trace.host, JsonString(json, "host", path));
  TRAINCTL_ASSIGN_OR_RETURN(trace.boot_id, JsonString(json, "boot_id", path));
  TRAINCTL_ASSIGN_OR_RETURN(trace.monotonic_ns, JsonInt(json, "monotonic_ns", path));
  TRAINCTL_ASSIGN_OR_RETURN(trace.unix_ns, JsonInt(json, "unix_ns", path));
  constexpr int64_t kMaxClock_ns = int64_t{1} << 61;  // differences stay within 64 bits
  if (trace.monotonic_ns < 0 || trace.monotonic_ns > kMaxClock_ns || trace.unix_ns < 0 ||
      trace.unix_ns > kMaxClock_ns) {
    return BadDataError(absl::StrCat(path, ": its clocks, ", trace.monotonic_ns, " and ", trace.unix_ns,
                                     ", are out of range"));
  }
  TRAINCTL_RETURN_IF_ERROR(ReadStreams(json, path, trace));
  TRAINCTL_RETURN_IF_ERROR(ReadSpans(json, path, trace));
  return trace;
}

// The step in "step-<step>-rank-<rank>.json"; nothing for other names.
std::optional<int64_t> StepOfName(absl::string_view name) {
  if (!absl::ConsumePrefix(&name, "step-") || !absl::ConsumeSuffix(&name, ".json")) return std::nullopt;
  const std::vector<absl::string_view> parts = absl::StrSplit(name, absl::ByString("-rank-"));
  int64_t step = 0, rank = 0;
  if (parts.size() != 2 || !absl::SimpleAtoi(parts[0], &step) || !absl::SimpleAtoi(parts[1], &rank)) {
    return std::nullopt;
  }
  return step;
}

using RanksOfStep = std::map<int, RankTrace>;

absl::StatusOr<std::map<int64_t, RanksOfStep>> ReadTraces(const std::string& folder, int64_t step) {
  std::map<int64_t, RanksOfStep> steps;
  std::error_code error;
  for (auto it = std::filesystem::directory_iterator(folder, error);
       !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    const std::optional<int64_t> of_name = StepOfName(it->path().filename().string());
    if (!of_name.has_value() || (step >= 0 && *of_name != step)) continue;
    TRAINCTL_ASSIGN_OR_RETURN(RankTrace trace, ReadTrace(it->path().string()));
    const int rank = trace.rank;
    steps[trace.step].insert_or_assign(rank, std::move(trace));
  }
  if (error && error.value() != ENOENT) return ErrnoError("read the folder", folder, error.value());
  if (!steps.empty()) return steps;
  return BadDataError(absl::StrCat(folder, " has no trace", step >= 0 ? absl::StrCat(" of step ", step) : "",
                                   "; metrics.trace_steps in the recipe says of which steps one is written"));
}

// The first rank's number of workers is the step's; what another number of workers left there goes.
void DropOtherWorlds(RanksOfStep& ranks, int64_t step, std::vector<std::string>& notes) {
  const int world_size = ranks.begin()->second.world_size;
  const size_t dropped =
      std::erase_if(ranks, [world_size](const auto& entry) { return entry.second.world_size != world_size; });
  if (dropped > 0) {
    notes.push_back(absl::StrCat("step ", step, ": ", dropped,
                                 " file(s) of a run with another number of workers than ", world_size,
                                 " are left out"));
  }
  for (int rank = 0; rank < world_size; ++rank) {
    if (!ranks.contains(rank)) {
      notes.push_back(absl::StrCat("step ", step, ": the trace of rank ", rank, " is not there"));
    }
  }
}

// By how much a rank's clock, at its own zero, is behind the reference's.
ClockOffset OffsetOf(const RankTrace& trace, const RankTrace& reference) {
  ClockOffset offset{trace.rank, 0, true};
  if (!trace.boot_id.empty() && trace.boot_id == reference.boot_id) return offset;
  if (trace.rank == reference.rank) return offset;
  const int64_t difference_ns =
      (trace.unix_ns - trace.monotonic_ns) - (reference.unix_ns - reference.monotonic_ns);
  offset.offset_us = static_cast<double>(difference_ns) / 1e3;
  offset.same_clock = false;
  return offset;
}

}  // namespace

int64_t MonotonicNanoseconds() { return Nanoseconds(CLOCK_MONOTONIC); }

StepRecorder::StepRecorder(std::vector<TracedInstruction> instructions, std::vector<std::string> streams,
                           int rank, int world_size)
    : instructions_(std::move(instructions)),
      streams_(std::move(streams)),
      rank_(rank),
      world_size_(world_size),
      spans_(instructions_.size()) {}

void StepRecorder::Begin() {
  std::fill(spans_.begin(), spans_.end(), Span());
  monotonic_ns_ = MonotonicNanoseconds();
  unix_ns_ = Nanoseconds(CLOCK_REALTIME);
}

absl::Status StepRecorder::Write(const std::string& folder, int64_t step) const {
  EventWriter events;
  events.Process(rank_, absl::StrCat("rank ", rank_), streams_);
  for (size_t i = 0; i < spans_.size(); ++i) {
    const Span& span = spans_[i];
    if (span.end_ns < span.begin_ns) continue;
    events.Span(rank_, instructions_[i].stream, span.begin_ns - monotonic_ns_, span.end_ns - monotonic_ns_,
                instructions_[i].name);
  }
  const std::string text =
      absl::StrCat("{\"schema\":\"", kTraceSchema, "\",\"step\":", step, ",\"rank\":", rank_,
                   ",\"world_size\":", world_size_, ",\"host\":", Quoted(HostName()),
                   ",\"boot_id\":", Quoted(BootId()), ",\"monotonic_ns\":", monotonic_ns_,
                   ",\"unix_ns\":", unix_ns_, ",\"streams\":", FormatJson(Json(streams_)),
                   ",\"displayTimeUnit\":\"ms\",", "\"traceEvents\":[", events.text(), "\n]}\n");
  TRAINCTL_RETURN_IF_ERROR(MakeDirs(folder));
  return WriteFileAtomic(absl::StrCat(folder, "/step-", step, "-rank-", rank_, ".json"), text);
}

absl::StatusOr<MergedTrace> MergeTraces(const std::string& folder, int64_t step,
                                        const std::vector<PredictedRanks>& predicted,
                                        absl::string_view title) {
  TRAINCTL_ASSIGN_OR_RETURN(auto steps, ReadTraces(folder, step));
  MergedTrace merged;
  EventWriter events;
  const RankTrace& reference = steps.begin()->second.begin()->second;
  std::optional<int64_t> zero_ns;  // of the merged trace, on the reference's clock
  std::map<int, bool> introduced;
  Json clocks = Json::array();
  for (auto& [number, ranks] : steps) {
    DropOtherWorlds(ranks, number, merged.notes);
    MergedStep summary{number, static_cast<int>(ranks.size()), 0, {}};
    int64_t first_ns = INT64_MAX, last_ns = INT64_MIN;
    std::map<int, int64_t> shift_ns;  // from a rank's own zero to the reference's clock
    for (const auto& [rank, trace] : ranks) {
      const ClockOffset offset = OffsetOf(trace, reference);
      summary.clocks.push_back(offset);
      clocks.push_back({{"step", number},
                        {"rank", rank},
                        {"host", trace.host},
                        {"offset_us", offset.offset_us},
                        {"basis", offset.same_clock ? "same clock" : "wall clocks"}});
      shift_ns[rank] = trace.monotonic_ns + static_cast<int64_t>(offset.offset_us * 1e3);
      for (const ReadSpan& span : trace.spans) {
        first_ns = std::min(first_ns, shift_ns[rank] + span.begin_ns);
        last_ns = std::max(last_ns, shift_ns[rank] + span.end_ns);
      }
    }
    if (first_ns > last_ns) continue;  // nothing ran
    if (!zero_ns.has_value()) zero_ns = first_ns;
    summary.seconds = static_cast<double>(last_ns - first_ns) / 1e9;
    for (const auto& [rank, trace] : ranks) {
      if (!std::exchange(introduced[rank], true)) {
        events.Process(rank, absl::StrCat("rank ", rank, " on ", trace.host), trace.streams);
      }
      const int64_t shift = shift_ns[rank] - *zero_ns;
      for (const ReadSpan& span : trace.spans) {
        events.Span(rank, span.stream, shift + span.begin_ns, shift + span.end_ns, span.name);
      }
    }
    for (size_t i = 0; i < predicted.size(); ++i) {
      const int process = kPredictedProcess + static_cast<int>(i);
      if (!std::exchange(introduced[process], true))
        events.Process(process, absl::StrCat("predicted, ", predicted[i].ranks), predicted[i].streams);
      for (const PredictedSpan& span : predicted[i].spans) {
        const int64_t begin_ns = first_ns - *zero_ns;
        events.Span(process, span.stream, begin_ns + static_cast<int64_t>(span.begin_s * 1e9),
                    begin_ns + static_cast<int64_t>(span.end_s * 1e9), span.name);
      }
    }
    merged.steps.push_back(std::move(summary));
  }
  Json notes = merged.notes;
  merged.json = absl::StrCat("{\"displayTimeUnit\":\"ms\",\"otherData\":{\"title\":", Quoted(title),
                             ",\"clocks\":", FormatAsciiJson(clocks), ",\"notes\":", FormatAsciiJson(notes),
                             "},\n\"traceEvents\":[", events.text(), "\n]}\n");
  return merged;
}

}  // namespace trainctl::telemetry
