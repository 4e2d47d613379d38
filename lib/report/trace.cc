#include "report/trace.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/json.h"

namespace trainctl::report {
namespace {

constexpr int kFirstThread = 1;  // 0 stands for the process as a whole

int64_t Nanoseconds(double seconds) {
  return std::isfinite(seconds) ? std::llround(std::clamp(seconds, 0.0, 9e9) * 1e9) : 0;
}

std::string Micros(int64_t nanoseconds) {
  return absl::StrFormat("%d.%03d", nanoseconds / 1000, nanoseconds % 1000);
}

std::string Quoted(absl::string_view text) {
  // Not every byte string is UTF-8: what is not is replaced.
  return FormatAsciiJson(Json(std::string(text)));
}

class Writer {
 public:
  explicit Writer(const StepPicture& step) : step_(step) {}

  std::string Run(absl::string_view title) {
    absl::StrAppend(&text_, "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"title\":", Quoted(title),
                    ",\"micro_batches\":", step_.num_micro_batches,
                    ",\"micro_batches_left_out\":", step_.left_out_micro_batches,
                    ",\"step_us\":", Micros(Nanoseconds(step_.step_s)), "},\n\"traceEvents\":[");
    for (size_t r = 0; r < step_.ranks.size(); ++r) WriteRank(r);
    absl::StrAppend(&text_, "\n]}\n");
    return std::move(text_);
  }

 private:
  void Begin() {
    absl::StrAppend(&text_, first_ ? "\n" : ",\n");
    first_ = false;
  }

  void Metadata(size_t r, int thread, absl::string_view what, absl::string_view key,
                absl::string_view value) {
    Begin();
    absl::StrAppend(&text_, "{\"ph\":\"M\",\"pid\":", r, ",\"tid\":", thread, ",\"name\":\"", what,
                    "\",\"args\":{\"", key, "\":", value, "}}");
  }

  void WriteRank(size_t r) {
    const RankPicture& rank = step_.ranks[r];
    Metadata(r, 0, "process_name", "name", absl::StrCat("\"pipeline rank ", r, "\""));
    Metadata(r, 0, "process_sort_index", "sort_index", absl::StrCat(r));
    for (size_t s = 0; s < rank.streams.size(); ++s) {
      const int thread = kFirstThread + static_cast<int>(s);
      Metadata(r, thread, "thread_name", "name", Quoted(rank.streams[s].name));
      Metadata(r, thread, "thread_sort_index", "sort_index", absl::StrCat(s));
    }
    for (size_t s = 0; s < rank.streams.size(); ++s) {
      WriteStream(r, kFirstThread + static_cast<int>(s), rank.streams[s]);
    }
    WriteMemory(r, rank);
  }

  void WriteStream(size_t r, int thread, const Stream& stream) {
    int64_t end = 0;
    for (const Span& span : stream.spans) {
      // Two ends that are the same time may differ in their last bits.
      const int64_t start = std::max(end, Nanoseconds(span.start_s));
      end = std::max(start, Nanoseconds(span.end_s));
      Begin();
      absl::StrAppend(&text_, "{\"ph\":\"X\",\"pid\":", r, ",\"tid\":", thread, ",\"ts\":", Micros(start),
                      ",\"dur\":", Micros(end - start), ",\"name\":\"", NameOf(span), "\",\"cat\":\"",
                      SpanKindName(span.kind), "\"");
      std::string args;
      const auto add = [&args](absl::string_view key, int value) {
        if (value >= 0) absl::StrAppend(&args, args.empty() ? "" : ",", "\"", key, "\":", value);
      };
      add("stage", span.stage);
      add("micro_batch", span.micro_batch);
      add("peer", span.peer);
      absl::StrAppend(&text_, args.empty() ? "" : ",\"args\":{", args, args.empty() ? "}" : "}}");
    }
  }

  static std::string NameOf(const Span& span) {
    switch (span.kind) {
      case SpanKind::kForward:
        return absl::StrCat("F", span.micro_batch);
      case SpanKind::kBackward:
        return absl::StrCat("B", span.micro_batch);
      case SpanKind::kBackwardInput:
        return absl::StrCat("I", span.micro_batch);
      case SpanKind::kBackwardWeight:
        return absl::StrCat("W", span.micro_batch);
      default:
        return std::string(SpanKindName(span.kind));
    }
  }

  void WriteMemory(size_t r, const RankPicture& rank) {
    for (const MemorySample& sample : rank.samples) {
      Begin();
      absl::StrAppendFormat(
          &text_,
          "{\"ph\":\"C\",\"pid\":%d,\"name\":\"memory, bytes\",\"ts\":%s,\"args\":{"
          "\"outside\":%.0f,\"states\":%.0f,\"gradients\":%.0f,\"activations\":%.0f,\"work\":%.0f}}",
          r, Micros(Nanoseconds(sample.time_s)), rank.outside_bytes, rank.state_bytes, sample.gradient_bytes,
          sample.activation_bytes, sample.work_bytes);
    }
  }

  const StepPicture& step_;
  std::string text_;
  bool first_ = true;
};

}  // namespace

std::string TraceJson(const StepPicture& step, absl::string_view title) { return Writer(step).Run(title); }

}  // namespace trainctl::report
