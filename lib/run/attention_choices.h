// Reads and writes a run folder's attention.json, which records the GPU attention kernel chosen for each
// shape from measurements at the first launch. A resumed run reads it in order to compute the same bits.
// Pure; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainctl::run {

struct AttentionChoice {
  // The measured configuration: a micro-batch of one layer, on a device with this name.
  std::string device;
  int64_t batch = 0;
  int64_t seq_len = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  // Time of a forward and backward pass. Empty if cuDNN has no kernel for the shape.
  std::optional<double> cudnn_seconds;
  double flash_seconds = 0;
  bool uses_cudnn = false;
};

std::string FormatAttentionChoices(const std::vector<AttentionChoice>& choices);

// Parses the output of FormatAttentionChoices. `path` names the file in error messages. Returns BadDataError
// for any other text, because guessing could change the bits of a resumed run.
absl::StatusOr<std::vector<AttentionChoice>> ParseAttentionChoices(absl::string_view text,
                                                                   absl::string_view path);

// Returns the choice for the device and shape of `wanted`, or nullptr if there is none yet.
const AttentionChoice* FindAttentionChoice(const std::vector<AttentionChoice>& choices,
                                           const AttentionChoice& wanted);

}  // namespace trainctl::run
