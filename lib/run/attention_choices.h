// attention.json of a run folder: which attention kernel of a GPU the run uses for each shape, as measured at
// the first start. A resumed run reads it, so that it computes the same bits. Pure; thread safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainctl::run {

struct AttentionChoice {
  // What was measured: a micro-batch of one layer on a device of this name.
  std::string device;
  int64_t batch = 0;
  int64_t seq_len = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  // Forward and backward pass together. Empty if cuDNN has no kernel for the shape.
  std::optional<double> cudnn_seconds;
  double flash_seconds = 0;
  bool uses_cudnn = false;
};

std::string FormatAttentionChoices(const std::vector<AttentionChoice>& choices);

// `path` names the file in messages. BadDataError for text that FormatAttentionChoices does not write: a
// guess could change the bits of a resumed run.
absl::StatusOr<std::vector<AttentionChoice>> ParseAttentionChoices(absl::string_view text,
                                                                   absl::string_view path);

// The choice for the device and shape of `wanted`, or nullptr if none was made yet.
const AttentionChoice* FindAttentionChoice(const std::vector<AttentionChoice>& choices,
                                           const AttentionChoice& wanted);

}  // namespace trainctl::run
