// Determines the condition of folders under `<run>/checkpoints`. All code that lists, verifies, counts, keeps
// or resumes checkpoints uses these functions, so it always reports the same condition. Read-only;
// thread-safe.
//
//   for (const Examined& one : *ExamineAll(root, Depth::kManifest)) Print(one.name(), one.status);
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "checkpoint/checkpoint_io.h"

namespace trainctl::checkpoint {

enum class Condition {
  // Its manifest is for this step and its files have the right sizes. Their content was not verified.
  kCommitted,
  // All of its bytes are intact and all of its weights are finite.
  kGood,
  // It is corrupt, incomplete, for another step, or not a folder.
  kDamaged,
  kNonFinite,   // intact, but a weight contains a NaN or infinity
  kUnreadable,  // cannot be examined: newer format or no permission
};
absl::string_view ConditionName(Condition condition);  // "committed", "good", "damaged", "non-finite", ...

enum class Depth {
  kManifest,   // reads only the manifest, which takes milliseconds regardless of size
  kEveryByte,  // reads and verifies all files
};

struct Examined {
  CheckpointInfo info;  // as passed in, including `bytes`
  Condition condition = Condition::kDamaged;
  absl::Status status;  // why it is not usable; OK if it is committed or good
  int world_size = 0;   // 0 if the manifest cannot be read; the same for num_tensors
  size_t num_tensors = 0;

  bool usable() const { return condition == Condition::kCommitted || condition == Condition::kGood; }
  absl::string_view name() const { return ConditionName(condition); }
};

// Examines one checkpoint. `info.step` is the step in the folder's name, or -1 to accept any step.
Examined Examine(const CheckpointInfo& info, Depth depth);
// Examines one folder at any path. If its name is like step-00000042, it must hold that step.
Examined ExamineFolder(const std::string& path, Depth depth);
// Examines everything in `root` that is named like a committed checkpoint, oldest first. Returns an empty
// list if `root` does not exist.
absl::StatusOr<std::vector<Examined>> ExamineAll(const std::string& root, Depth depth);

struct NewestCommitted {
  int64_t step = -1;                  // step of the newest committed checkpoint; -1 if there is none
  absl::Status listed;                // error if the root cannot be listed
  std::vector<Examined> passed_over;  // newer checkpoints that are not committed, newest first
  // Returns one line per entry of passed_over, for example "checkpoint of step 8 is damaged: ...". If no
  // checkpoint was found, the first line says why.
  std::vector<std::string> Problems() const;
};
// Finds the newest committed checkpoint whose step is above `above`, reading manifests from the newest down.
// Cheap enough to call every second with the last known step as `above`.
NewestCommitted FindNewestCommitted(const std::string& root, int64_t above = -1);

// Returns the error for weights in `path` that contain NaN or infinity. `tensors` are their names and must
// not be empty.
absl::Status NonFiniteError(const std::string& path, const std::vector<std::string>& tensors);

// Finds the newest good checkpoint. Adds a line to `warnings` for each newer one that is not good. Returns
// NotFound if there are no checkpoints, and BadDataError if none is good. Returns EnvironmentError at an
// unreadable checkpoint, because silently falling back to an older one would lose work. `judge` replaces the
// default check, which reads every byte; an error from it ends the search.
using Judge = std::function<absl::StatusOr<Examined>(const CheckpointInfo& info)>;
absl::StatusOr<CheckpointInfo> FindNewestGood(const std::string& root, std::vector<std::string>* warnings,
                                              const Judge& judge = {});

}  // namespace trainctl::checkpoint
