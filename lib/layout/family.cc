#include "layout/family.h"

namespace trainctl::layout {

Family FamilyOf(const Layout& layout) {
  const Mesh& mesh = layout.mesh;
  if (mesh.tp > 1) return mesh.pp > 1 ? Family::kTensorAndPipeline : Family::kTensor;
  if (mesh.pp > 1) return Family::kPipeline;
  if (mesh.dp_replicate > 1 && mesh.dp_shard > 1) return Family::kHsdp;
  return static_cast<Family>(layout.zero_stage);
}

absl::string_view FamilyName(Family family) {
  constexpr absl::string_view kNames[kNumFamilies] = {"DDP",  "ZeRO-1", "ZeRO-2", "ZeRO-3",
                                                      "HSDP", "tp",     "pp",     "tp x pp"};
  return kNames[static_cast<size_t>(family)];
}

}  // namespace trainctl::layout
