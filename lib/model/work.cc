#include "model/work.h"

namespace trainctl::model {

Work& Work::operator+=(const Work& other) {
  for (size_t i = 0; i < units.size(); ++i) units[i] += other.units[i];
  return *this;
}

absl::string_view ResourceName(Resource resource) {
  static constexpr absl::string_view kNames[kNumResources] = {"matmul_flops",
                                                              "attention_flops",
                                                              "attention_backward_flops",
                                                              "attention_tiles",
                                                              "logits",
                                                              "operand_bytes",
                                                              "moved_bytes",
                                                              "optimizer_elements",
                                                              "operators",
                                                              "sent_bytes",
                                                              "collectives",
                                                              "steps"};
  return kNames[static_cast<size_t>(resource)];
}

}  // namespace trainctl::model
