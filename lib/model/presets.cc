// Named model sizes. Published models have the dimensions of their config.json.

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "model/model_spec.h"

namespace trainctl::model {
namespace {

// How positions are encoded, by generation.
enum class Rope { kPlain, kLlama31, kLlama32 };

struct PresetRow {
  const char* name;
  int64_t layers, hidden, heads, kv_heads, head_dim, ffn, vocab, max_position;
  bool tied;
  Rope rope;
};

constexpr PresetRow kPresets[] = {
    // Sizes of our own, for tests, quick starts and benchmarks.
    {"toy-1m", 4, 128, 4, 2, 32, 384, 1024, 2048, false, Rope::kPlain},
    {"toy-5m", 6, 256, 8, 4, 32, 704, 1024, 2048, false, Rope::kPlain},
    {"llama-25m", 8, 384, 6, 2, 64, 1024, 16384, 2048, false, Rope::kPlain},
    {"llama-120m", 12, 768, 12, 4, 64, 2048, 32000, 2048, false, Rope::kPlain},
    {"llama-1b", 22, 2048, 32, 4, 64, 5632, 32000, 2048, false, Rope::kPlain},  // as TinyLlama
    // Published models.
    {"llama3.2-1b", 16, 2048, 32, 8, 64, 8192, 128256, 131072, true, Rope::kLlama32},
    {"llama3.2-3b", 28, 3072, 24, 8, 128, 8192, 128256, 131072, true, Rope::kLlama32},
    {"llama2-7b", 32, 4096, 32, 32, 128, 11008, 32000, 4096, false, Rope::kPlain},
    {"llama3.1-8b", 32, 4096, 32, 8, 128, 14336, 128256, 131072, false, Rope::kLlama31},
    {"llama2-13b", 40, 5120, 40, 40, 128, 13824, 32000, 4096, false, Rope::kPlain},
    {"llama2-70b", 80, 8192, 64, 8, 128, 28672, 32000, 4096, false, Rope::kPlain},
    {"llama3.1-70b", 80, 8192, 64, 8, 128, 28672, 128256, 131072, false, Rope::kLlama31},
    {"llama3.1-405b", 126, 16384, 128, 8, 128, 53248, 128256, 131072, false, Rope::kLlama31},
};

ModelSpec SpecOf(const PresetRow& row) {
  ModelSpec spec;
  spec.layers = row.layers;
  spec.hidden = row.hidden;
  spec.heads = row.heads;
  spec.kv_heads = row.kv_heads;
  spec.head_dim = row.head_dim;
  spec.ffn = row.ffn;
  spec.vocab = row.vocab;
  spec.max_position = row.max_position;
  spec.tie_embeddings = row.tied;
  if (row.rope != Rope::kPlain) {
    spec.rope_theta = 500000.0;
    spec.rope_scaling = RopeScaling{.factor = row.rope == Rope::kLlama31 ? 8.0 : 32.0};
  }
  return spec;
}

}  // namespace

absl::StatusOr<ModelSpec> Preset(absl::string_view name) {
  for (const PresetRow& row : kPresets) {
    if (name == row.name) return SpecOf(row);
  }
  return UsageError(absl::StrCat("model.preset = \"", name, "\" is not known; the presets are ",
                                 absl::StrJoin(PresetNames(), ", ")));
}

std::vector<std::string> PresetNames() {
  std::vector<PresetRow> rows(std::begin(kPresets), std::end(kPresets));
  std::stable_sort(rows.begin(), rows.end(), [](const PresetRow& a, const PresetRow& b) {
    return NumParameters(SpecOf(a)) < NumParameters(SpecOf(b));
  });
  std::vector<std::string> names;
  for (const PresetRow& row : rows) names.push_back(row.name);
  return names;
}

}  // namespace trainctl::model
