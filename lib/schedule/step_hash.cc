#include "schedule/step_hash.h"

#include <xxhash.h>

#include <cstdint>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/status.h"

namespace trainctl::schedule {
namespace {

// Raise it when the meaning of anything below changes: other builds then refuse the step.
constexpr int64_t kFormatVersion = 1;

struct FreeState {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};

}  // namespace

// Every number goes in as eight little-endian bytes, every list and text after its length, so that no two
// steps have one spelling.
class StepHasher::State {
 public:
  State() : xxh_(XXH3_createState()) {
    TRAINCTL_CHECK_MSG(xxh_ != nullptr, "no memory for a hash");
    XXH3_128bits_reset(xxh_.get());
  }

  template <typename T>
  State& operator<<(const std::vector<T>& list) {
    *this << static_cast<int64_t>(list.size());
    for (const auto& item : list) *this << static_cast<int64_t>(item);
    return *this;
  }
  State& operator<<(int64_t number) {
    unsigned char bytes[8];
    for (int i = 0; i < 8; ++i)
      bytes[i] = static_cast<unsigned char>(static_cast<uint64_t>(number) >> (8 * i));
    XXH3_128bits_update(xxh_.get(), bytes, sizeof(bytes));
    return *this;
  }
  State& operator<<(const std::string& text) {
    *this << static_cast<int64_t>(text.size());
    XXH3_128bits_update(xxh_.get(), text.data(), text.size());
    return *this;
  }

  std::string Digest() const {
    const XXH128_hash_t hash = XXH3_128bits_digest(xxh_.get());
    return absl::StrFormat("%016x%016x", hash.high64, hash.low64);
  }

 private:
  std::unique_ptr<XXH3_state_t, FreeState> xxh_;
};

StepHasher::StepHasher(const Schedule& schedule, const layout::Ledger& ledger)
    : state_(std::make_unique<State>()) {
  State& s = *state_;
  s << kFormatVersion;
  for (int axis = 0; axis < layout::kNumAxes; ++axis) {
    s << ledger.mesh().degree(static_cast<layout::Axis>(axis));
  }
  s << ledger.zero_stage() << schedule.num_micro_batches << schedule.receive_buffer_bytes;
  s << ledger.num_buckets();
  for (const layout::Bucket& bucket : ledger.buckets()) {
    s << bucket.block << bucket.numel << bucket.shard_numel << bucket.padded_numel;
    s << bucket.offsets << bucket.used_by;
  }
  const std::vector<layout::Reduction> reductions = ledger.Reductions();
  s << static_cast<int64_t>(reductions.size());
  for (const layout::Reduction& reduction : reductions) {
    s << reduction.name << static_cast<int64_t>(reduction.axis);
  }
  s << static_cast<int64_t>(schedule.values.size());
  for (const Value& value : schedule.values) {
    s << value.name << static_cast<int64_t>(value.category) << value.bytes << value.persistent;
  }
  for (const std::vector<Slot>* slots : {&schedule.parameter_slots, &schedule.gradient_slots}) {
    s << static_cast<int64_t>(slots->size());
    for (const Slot& slot : *slots) s << slot.numel << slot.value;
  }
}

StepHasher::~StepHasher() = default;

void StepHasher::Add(const Instruction& i) {
  *state_ << static_cast<int64_t>(i.op) << static_cast<int64_t>(i.stream) << i.block << i.bucket
          << i.micro_batch << i.slot << i.keep << i.first << i.last << i.waits << i.parameter_slots
          << i.gradient_slots << i.accumulate << i.reads << i.writes << i.frees << i.peak_extra_bytes;
}

std::string StepHasher::Finish() const { return state_->Digest(); }

std::string HashStep(const Schedule& schedule, const layout::Ledger& ledger) {
  StepHasher hasher(schedule, ledger);
  for (const Instruction& instruction : schedule.instructions) hasher.Add(instruction);
  return hasher.Finish();
}

}  // namespace trainctl::schedule
