// Internal to the builders: builds the program of one class. Adds storage, gathers, reductions and messages
// to the work of its blocks. Not thread-safe.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/status.h"
#include "model/segment.h"
#include "schedule/build_step.h"
#include "schedule/expand_passes.h"
#include "schedule/step.h"

namespace trainctl::schedule {

// The properties of the model that the builders need, by block.
struct BlockTable {
  std::vector<model::SegmentMemory> memory;  // [block]
  int64_t hidden_gradient_bytes = 0;         // the gradient of one block's input
  int64_t rotary_bytes = 0;
  bool tied = false;             // whether the head reads the embedding's table
  std::vector<bool> recomputed;  // [block], whether it keeps only its input and recomputes; empty for none

  bool IsRecomputed(int block) const { return !recomputed.empty() && recomputed[static_cast<size_t>(block)]; }
};

// Indices of the fixed groups in Step::groups.
inline constexpr int kGatherShardGroup = 0;
inline constexpr int kReduceShardGroup = 1;
inline constexpr int kReduceReplicateGroup = 2;
inline constexpr int kScalarShardGroup = 3;
inline constexpr int kScalarReplicateGroup = 4;
inline constexpr int kNumDataGroups = 5;
// The next groups are those of the pipeline and of tensor parallelism, if the layout has them, and those over
// which copies of a bucket are summed.

class ProgramBuilder {
 public:
  // All pointers must stay valid while the builder is used.
  struct Inputs {
    const Step* step = nullptr;
    const BlockTable* blocks = nullptr;
    const layout::Ledger* ledger = nullptr;  // null to build only passes and messages
    const BuildOptions* options = nullptr;
    const ExpandedOrder* order = nullptr;
    // [bucket], the groups over which its copies are summed. Only used with a ledger.
    const std::vector<Ids>* copy_groups_of_bucket = nullptr;
    bool sends_on_compute = false;
  };
  ProgramBuilder(const Inputs& in, int own_class, Program& program);

  // Returns BadDataError if a pass of the schedule runs before its inputs exist or runs twice. If the step
  // has an update, also returns it if the class has no pass.
  absl::Status Build();

 private:
  // The state of a slot in a pool of interchangeable slots.
  struct ParameterSlot {
    int slot = -1;       // index in Program::parameter_slots
    int bucket = -1;     // the bucket that it holds
    int gather = -1;     // instruction that filled it
    int last_user = -1;  // last compute instruction that read it
  };
  struct GradientSlot {
    int slot = -1;    // index in Program::gradient_slots
    int bucket = -1;  // the bucket and micro-batch whose gradient it holds
    int micro_batch = -1;
    int last_reduce = -1;  // the reduction that last emptied it
  };
  // Classes of buckets. Those of one class share slots: all layers; the embedding and a head that is not
  // tied; and a head that is tied.
  enum SlotKind { kLayerSlots, kEdgeSlots, kTiedHeadSlots, kNumSlotKinds };

  // The values of one micro-batch at one block, or -1 if they do not exist at this point.
  struct Held {
    int hidden = -1;       // the block's input
    int gradient = -1;     // the gradient of that input
    int saved = -1;        // activations that its backward needs
    int queued = -1;       // values that its weight backward needs
    bool forward = false;  // whether its forward has run, but its backward has not
  };

  const model::SegmentMemory& MemoryOf(int block) const {
    return in_.blocks->memory[static_cast<size_t>(block)];
  }
  bool shards_parameters() const { return in_.ledger != nullptr && in_.ledger->parameters_sharded(); }
  bool shards_gradients() const { return in_.ledger != nullptr && in_.ledger->gradients_sharded(); }
  const layout::Bucket& BucketAt(int bucket) const {
    return in_.ledger->buckets()[static_cast<size_t>(bucket)];
  }
  Held& At(int block, int micro_batch) {
    const int row = row_of_block_[static_cast<size_t>(block)];
    TRAINCTL_CHECK(row >= 0);
    return held_[static_cast<size_t>(row) * static_cast<size_t>(in_.step->num_micro_batches) +
                 static_cast<size_t>(micro_batch)];
  }

  // ---- program_storage.cc: persistent values and slots
  void AddStorage();
  int AddValue(const Value& value);
  void AddPersistentValues();
  void AddReceiveBuffer();
  void AddTokens();
  int64_t PieceBytes(int64_t numel, int degree) const;
  int64_t WholeShardBytes(int64_t numel) const;
  SlotKind KindOf(int bucket) const;
  int NumSlots(SlotKind kind) const;
  int AddSlot(ValueKind value_kind, SlotKind kind);

  // ---- program_slots.cc: the contents of slots over time
  void PlanUses();
  size_t NextUse(int bucket, size_t from) const;
  size_t NextUse(const ParameterSlot& slot, size_t from) const;
  void GatherFor(size_t use, absl::Span<const int> busy, int after);
  void NeedParameters(Instruction& instruction);
  void PlanReductions();
  void NeedGradients(Instruction& instruction);
  GradientSlot& ClaimGradientSlot(int bucket, Instruction& instruction);
  void ReduceAfter(size_t work, int index);

  // ---- program_builder.cc: instructions
  int Emit(Instruction&& instruction);
  int EmitCompute(Instruction&& instruction);
  int StreamTo(bool send, int peer);
  absl::Status Receive(const Message& wanted, int from);
  void WaitForMessage(int value, Instruction& instruction);
  void SendAfter(const Work& work, int index);
  absl::Status BuildWork(size_t index);
  absl::Status BuildForward(const Work& work, Instruction& instruction);
  void AddSaved(const Work& work, Instruction& instruction);
  absl::Status BuildRecompute(const Work& work, Instruction& instruction);
  absl::Status BuildLoss(const Work& work, Instruction& instruction);
  absl::Status BuildBackward(const Work& work, Instruction& instruction);
  absl::Status BuildBackwardWeight(const Work& work, Instruction& instruction);
  absl::Status NeedHidden(const Work& work, Instruction& instruction);
  absl::Status NeedOutputGradient(const Work& work, Instruction& instruction);
  void WriteInputGradient(const Work& work, Instruction& instruction);
  static void ReadAndFree(int& value, Instruction& instruction);
  void BuildUpdate();
  int GroupOf(layout::Axis axis) const;
  template <typename... Args>
  absl::Status Fail(const Work& work, const Args&... reason) const;

  const Inputs in_;
  const int class_;
  const std::vector<Work>& works_;
  Program& program_;
  std::vector<int> own_buckets_;
  std::vector<int> row_of_block_;                    // [block], row in held_; -1 if not used by this class
  std::vector<Held> held_;                           // [row, micro-batch]
  int64_t largest_slot_[kNumSlotKinds] = {0, 0, 0};  // elements
  std::vector<ParameterSlot> parameter_pool_[kNumSlotKinds];
  std::vector<GradientSlot> gradient_pool_[kNumSlotKinds];
  std::vector<int> uses_;                            // block of each work that reads parameters
  std::vector<std::vector<size_t>> uses_of_bucket_;  // [bucket], indices in uses_ in ascending order
  size_t next_use_ = 0;
  Ids slots_of_recompute_;            // parameter slots of the last recompute, which its backward reuses
  std::vector<uint8_t> reduces_;      // [work], bit k if it completes the gradient of its block's k-th bucket
  std::vector<uint8_t> written_;      // [bucket], bits of the gradient parts that have been written
  std::vector<bool> reduced_;         // [bucket], whether it has been reduced at least once
  std::vector<int> reductions_left_;  // [bucket], reductions until the end of the step
  std::map<std::pair<int, int>, uint8_t> written_in_slot_;  // as written_, by bucket and micro-batch
  std::vector<size_t> num_received_;                        // [channel], messages received so far
  std::vector<int> receive_of_value_;                       // [value], its receive; -1 if none or waited for
  struct PendingSend {
    int to = -1;
    Message message;
    int maker = -1;  // instruction that produces the value
  };
  absl::InlinedVector<PendingSend, 2> pending_sends_;
  int last_compute_ = -1;
  int compute_before_ = -1;  // the compute instruction before last_compute_
  int last_reduce_ = -1;
};

}  // namespace trainctl::schedule
