#include "checkpoint/examine.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "checkpoint/folder_list.h"
#include "checkpoint/folder_names.h"

namespace trainctl::checkpoint {
namespace {

constexpr size_t kTensorsNamed = 3;

// A link is not followed: retention would remove what it leads to.
absl::Status CheckIsFolder(const CheckpointInfo& info) {
  struct stat found;
  if (info.step < 0 || ::lstat(info.path.c_str(), &found) != 0 || S_ISDIR(found.st_mode)) {
    return absl::OkStatus();
  }
  return BadDataError(absl::StrCat(
      info.path, S_ISLNK(found.st_mode) ? ": a symbolic link, which is not followed; move the folder here"
                                        : ": not a folder"));
}

Examined Failed(Examined examined, const absl::Status& status) {
  examined.condition =
      status.code() == absl::StatusCode::kDataLoss ? Condition::kDamaged : Condition::kUnreadable;
  examined.status = status;
  return examined;
}

}  // namespace

absl::string_view ConditionName(Condition condition) {
  switch (condition) {
    case Condition::kCommitted:
      return "committed";
    case Condition::kGood:
      return "good";
    case Condition::kDamaged:
      return "damaged";
    case Condition::kNonFinite:
      return "non-finite";
    case Condition::kUnreadable:
      return "unreadable";
  }
  return "unknown";
}

absl::Status NonFiniteError(const std::string& path, const std::vector<std::string>& tensors) {
  const size_t num_named = std::min(tensors.size(), kTensorsNamed);
  const auto end = tensors.begin() + static_cast<std::ptrdiff_t>(num_named);
  const size_t num_more = tensors.size() - num_named;
  return BadDataError(absl::StrCat(path, ": NaN or infinite values in ",
                                   absl::StrJoin(tensors.begin(), end, ", "),
                                   num_more > 0 ? absl::StrCat(" and ", num_more, " more") : ""));
}

Examined Examine(const CheckpointInfo& info, Depth depth) {
  Examined examined{.info = info};
  if (const absl::Status status = CheckIsFolder(info); !status.ok()) return Failed(examined, status);
  const absl::StatusOr<CheckpointReader> reader = CheckpointReader::Open(info.path);
  if (!reader.ok()) return Failed(examined, reader.status());
  examined.world_size = reader->world_size();
  examined.num_tensors = reader->tensors().size();
  const int64_t step = reader->meta().step;
  if (info.step >= 0 && step != info.step) {
    return Failed(examined,
                  BadDataError(absl::StrCat(info.path, ": contains step ", step, ", not ", info.step)));
  }
  examined.info.step = step;
  examined.condition = Condition::kCommitted;
  if (depth == Depth::kManifest) return examined;
  std::vector<std::string> non_finite;
  if (const absl::Status status = reader->Verify(&non_finite); !status.ok()) return Failed(examined, status);
  examined.condition = non_finite.empty() ? Condition::kGood : Condition::kNonFinite;
  if (!non_finite.empty()) examined.status = NonFiniteError(info.path, non_finite);
  return examined;
}

Examined ExamineFolder(const std::string& path, Depth depth) {
  std::string plain = path;
  while (plain.size() > 1 && plain.back() == '/') plain.pop_back();
  const std::optional<FolderName> name = ParseFolderName(std::filesystem::path(plain).filename().string());
  return Examine({plain, name.has_value() ? name->step : -1, 0}, depth);
}

absl::StatusOr<std::vector<Examined>> ExamineAll(const std::string& root, Depth depth) {
  TRAINCTL_ASSIGN_OR_RETURN(const std::vector<CheckpointInfo> named, ListNamed(root));
  std::vector<Examined> all;
  for (CheckpointInfo info : named) {
    if (IsFolder(info.path)) info.bytes = BytesIn(info.path);
    all.push_back(Examine(info, depth));
  }
  return all;
}

std::vector<std::string> NewestCommitted::Problems() const {
  std::vector<std::string> lines;
  if (!listed.ok()) lines.emplace_back(listed.message());
  for (const Examined& one : passed_over) {
    lines.push_back(
        absl::StrCat("checkpoint at step ", one.info.step, " is ", one.name(), ": ", one.status.message()));
  }
  return lines;
}

NewestCommitted FindNewestCommitted(const std::string& root, int64_t above) {
  NewestCommitted newest;
  absl::StatusOr<std::vector<CheckpointInfo>> named = ListNamed(root);
  newest.listed = named.status();
  if (!named.ok()) return newest;
  for (; !named->empty() && named->back().step > above; named->pop_back()) {
    Examined examined = Examine(named->back(), Depth::kManifest);
    if (examined.usable()) {
      newest.step = examined.info.step;
      return newest;
    }
    newest.passed_over.push_back(std::move(examined));
  }
  return newest;
}

absl::StatusOr<CheckpointInfo> FindNewestGood(const std::string& root, std::vector<std::string>* warnings,
                                              const Judge& judge) {
  TRAINCTL_ASSIGN_OR_RETURN(std::vector<CheckpointInfo> named, ListNamed(root));
  if (named.empty()) return absl::NotFoundError(absl::StrCat(root, ": there is no checkpoint"));
  std::string first_reason;
  for (; !named.empty(); named.pop_back()) {
    Examined examined;
    if (judge) {
      TRAINCTL_ASSIGN_OR_RETURN(examined, judge(named.back()));
    } else {
      examined = Examine(named.back(), Depth::kEveryByte);
    }
    if (examined.usable()) return examined.info;
    if (examined.condition == Condition::kUnreadable) return examined.status;
    if (first_reason.empty()) {
      first_reason = absl::StrCat("at step ", examined.info.step, ", is ", examined.name(), ": ",
                                  examined.status.message());
    }
    if (warnings != nullptr) {
      warnings->push_back(absl::StrCat("checkpoint at step ", examined.info.step, " is ", examined.name(),
                                       " and was skipped: ", examined.status.message()));
    }
  }
  return BadDataError(absl::StrCat(root, ": no checkpoint is valid; the newest one, ", first_reason));
}

}  // namespace trainctl::checkpoint
