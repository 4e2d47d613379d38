// One class's program: its blocks' work with storage, gathers, reductions and messages. Internal to the
// builders.
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

// What the builders need to know of the model, block by block.
struct BlockTable {
  std::vector<model::SegmentMemory> memory;  // of each block
  int64_t hidden_gradient_bytes = 0;
  int64_t rotary_bytes = 0;
  bool tied = false;             // the head reads the embedding's table
  std::vector<bool> recomputed;  // by block: its forward keeps its input alone, and runs again; empty: none

  bool IsRecomputed(int block) const { return !recomputed.empty() && recomputed[static_cast<size_t>(block)]; }
};

// Where the groups of a step are in Step::groups.
inline constexpr int kGatherShardGroup = 0;
inline constexpr int kReduceShardGroup = 1;
inline constexpr int kReduceReplicateGroup = 2;
inline constexpr int kScalarShardGroup = 3;
inline constexpr int kScalarReplicateGroup = 4;
inline constexpr int kNumDataGroups = 5;
// Then that of the pipeline, that of tensor parallelism, where there are any, and those of copies.

class ProgramBuilder {
 public:
  // All are borrowed.
  struct Inputs {
    const Step* step = nullptr;
    const BlockTable* blocks = nullptr;
    const layout::Ledger* ledger = nullptr;  // null: passes alone
    const BuildOptions* options = nullptr;
    const ExpandedOrder* order = nullptr;
    // By bucket: the groups over which copies of it are summed.
    const std::vector<Ids>* copy_groups_of_bucket = nullptr;
    bool sends_on_compute = false;
  };
  ProgramBuilder(const Inputs& in, int own_class, Program& program);

  // BadDataError: a pass of the order runs before what it needs, or twice.
  absl::Status Build();

 private:
  // A pool of interchangeable slots of one kind.
  struct ParameterSlot {
    int slot = -1;
    int bucket = -1;     // what it holds
    int gather = -1;     // instruction that filled it
    int last_user = -1;  // last compute instruction that read it
  };
  struct GradientSlot {
    int slot = -1;
    int bucket = -1;  // what it holds, and of which micro-batch
    int micro_batch = -1;
    int last_reduce = -1;  // the reduction that empties it
  };
  // Buckets that may share a slot: the layers among themselves, the embedding and an untied head.
  enum SlotKind { kLayerSlots, kEdgeSlots, kTiedHeadSlots, kNumSlotKinds };

  // Values of one micro-batch at one block; -1: not alive.
  struct Held {
    int hidden = -1;    // its input
    int gradient = -1;  // of its input
    int saved = -1;
    int queued = -1;
    bool forward = false;  // has run, and its backward has not
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

  // ---- program_storage.cc: what lives through the run, and slots
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

  // ---- program_slots.cc: who is in which slot when
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
  std::vector<int> row_of_block_;                    // in held_, of the blocks that come up here
  std::vector<Held> held_;                           // [row, micro-batch]
  int64_t largest_slot_[kNumSlotKinds] = {0, 0, 0};  // elements
  std::vector<ParameterSlot> parameter_pool_[kNumSlotKinds];
  std::vector<GradientSlot> gradient_pool_[kNumSlotKinds];
  std::vector<int> uses_;                            // block of each work that reads parameters
  std::vector<std::vector<size_t>> uses_of_bucket_;  // positions in uses_, ascending
  size_t next_use_ = 0;
  Ids slots_of_recompute_;            // that its backward reads as well
  std::vector<uint8_t> reduces_;      // by work: bit k: the k-th bucket of its block is complete after it
  std::vector<uint8_t> written_;      // by bucket: parts of the gradient that are begun
  std::vector<bool> reduced_;         // by bucket: once at least
  std::vector<int> reductions_left_;  // by bucket, of the step
  std::map<std::pair<int, int>, uint8_t> written_in_slot_;  // likewise, by bucket and micro-batch
  std::vector<size_t> num_received_;                        // by channel
  std::vector<int> receive_of_value_;                       // -1: none, or one reader has waited for it
  struct PendingSend {
    int to = -1;
    Message message;
    int maker = -1;  // instruction
  };
  absl::InlinedVector<PendingSend, 2> pending_sends_;
  int last_compute_ = -1;
  int compute_before_ = -1;  // the last but one
  int last_reduce_ = -1;
};

}  // namespace trainctl::schedule
