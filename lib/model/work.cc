#include "model/work.h"

#include <algorithm>

namespace trainctl::model {
namespace {

// Equal ones are counted together, so that the work of a whole step stays a short list.
template <typename T>
void Add(const CountedList<T>& more, CountedList<T>& list) {
  for (const Counted<T>& item : more) {
    const auto same = std::find_if(list.begin(), list.end(),
                                   [&](const Counted<T>& other) { return other.what == item.what; });
    if (same == list.end()) {
      list.push_back(item);
    } else {
      same->count += item.count;
    }
  }
}

}  // namespace

Work& Work::operator+=(const Work& other) {
  for (size_t i = 0; i < units.size(); ++i) units[i] += other.units[i];
  Add(other.products, products);
  Add(other.attention, attention);
  Add(other.exchanges, exchanges);
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
                                                              "tensor_exchanges",
                                                              "steps"};
  return kNames[static_cast<size_t>(resource)];
}

double SentBytes(const Exchange& exchange) {
  if (exchange.collective == Collective::kSendRecv) return exchange.bytes;
  const double others = static_cast<double>(exchange.ranks - 1) / static_cast<double>(exchange.ranks);
  const double passes = exchange.collective == Collective::kAllReduce ? 2 : 1;
  return passes * others * exchange.bytes;
}

}  // namespace trainctl::model
