#include "report/step_picture.h"

namespace trainctl::report {

absl::string_view SpanKindName(SpanKind kind) {
  static constexpr absl::string_view kNames[kNumSpanKinds] = {"forward",
                                                              "backward",
                                                              "input backward",
                                                              "weight backward",
                                                              "wait",
                                                              "send activation",
                                                              "send gradient",
                                                              "tensor parallel",
                                                              "expert parallel",
                                                              "context parallel",
                                                              "gather parameters",
                                                              "reduce gradients",
                                                              "data parallel, exposed",
                                                              "optimizer"};
  return kNames[static_cast<size_t>(kind)];
}

}  // namespace trainctl::report
