#include "run/event_text.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace trainctl::run {
namespace {

std::string WithMessage(absl::string_view what, const JournalEvent& event) {
  if (absl::StartsWith(event.message, absl::StrCat(what, " "))) return event.message;
  return event.message.empty() ? std::string(what) : absl::StrCat(what, ": ", event.message);
}

std::string Workers(int world_size) {
  return absl::StrCat(world_size, world_size == 1 ? " worker" : " workers");
}

std::string LaunchText(const JournalEvent& event) {
  std::string text = absl::StrCat("launched: ", Workers(event.world_size));
  if (!event.nodes.empty()) absl::StrAppend(&text, " on ", absl::StrJoin(event.nodes, ", "));
  absl::StrAppend(&text, "; process ", event.pid);
  if (!event.host.empty()) absl::StrAppend(&text, " on ", event.host);
  return text;
}

std::string FailureEventText(const JournalEvent& event) {
  if (event.rank < 0) return WithMessage("failed", event);
  return WithMessage(
      absl::StrCat("rank ", event.rank, event.host.empty() ? "" : " on ", event.host, " failed ",
                   event.step < 0 ? "during start-up" : absl::StrCat("in step ", event.step)),
      event);
}

}  // namespace

std::string EventText(const JournalEvent& event) {
  switch (event.kind) {
    case EventKind::kLaunch:
      return LaunchText(event);
    case EventKind::kGeneration:
      return absl::StrCat("generation ", event.generation, ": ", Workers(event.world_size));
    case EventKind::kWorkerExit:
      return FailureEventText(event);
    case EventKind::kCheckpoint:
      return absl::StrCat("checkpoint at step ", event.step);
    case EventKind::kStop:
      return absl::StrCat("asked to ", event.message);
    case EventKind::kRestart:
      return event.message;
    case EventKind::kChange:
      return event.step > 0 ? WithMessage(absl::StrCat("changed after step ", event.step), event)
                            : WithMessage("changed", event);
    case EventKind::kFromScratch:
      return "restarts at step 1";
    case EventKind::kEnd:
      return WithMessage(RunStatusName(event.status), event);
  }
  return "";
}

}  // namespace trainctl::run
