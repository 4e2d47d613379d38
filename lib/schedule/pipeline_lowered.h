// A pipeline order with everything said: per rank a list of instructions with sends, receives and storage.
// The checker proves it and a player times it; the trainer does not execute it yet. Pure functions, thread
// safe, no LibTorch.
//
// A rank runs its list in order. A receive blocks until its message has come; a send hands its
// buffer over and goes on. Between two ranks, messages of one direction (activations and gradients
// together) arrive in the order in which they were sent, so one stream per pair of ranks will do.
//
// Storage of a rank, as in schedule.h's slots:
//   activation slots  what the backward of one stage and micro-batch needs (its input included),
//                     from its forward to its backward, or to its weight backward if that is split;
//   buffers           one tensor at the border of two stages, activation or gradient: an output
//                     until it is sent, an input until its pass has run.
// A *joined* instruction, a forward, runs together with the next one, a backward; what either frees
// is free when both have ended.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "schedule/pipeline.h"

namespace trainctl::schedule {

struct PipelineInstruction {
  PipelineOp op = PipelineOp::kForward;
  bool joined = false;      // kForward: runs together with the next instruction
  bool frees_slot = false;  // kBackward, kBackwardWeight
  bool frees_read = false;  // the buffer that it reads is free at its end
  int stage = 0;
  int micro_batch = 0;
  int peer = -1;  // rank, of sends and receives
  int slot = -1;  // activation slot: written by kForward, read by the backwards
  int reads =
      -1;  // buffer: input of a pass (-1: the first stage's forward, the last stage's backward), of a send
  int writes = -1;  // buffer: output of a pass (-1: the last stage's forward, the first stage's backward), of
                    // a receive
  bool operator==(const PipelineInstruction&) const = default;
};

struct LoweredPipeline {
  std::string name;
  PipelinePlacement placement;
  std::vector<std::vector<PipelineInstruction>> instructions;  // by rank
  std::vector<int> num_slots;                                  // by rank: peak of live activations
  std::vector<int> num_buffers;                                // by rank
};

// Adds communication and storage. Receives stand as late as they can, sends as early. Refuses with
// BadDataError a schedule in which a pass has no place to get its input from, naming rank and action.
absl::StatusOr<LoweredPipeline> LowerPipeline(const PipelineSchedule& schedule);

struct PipelineProof {
  int64_t num_instructions = 0;
  // True if it also runs where a send blocks until its receive is reached. Schedules that keep both
  // directions busy do not; they need sends that go on, or sends and receives posted together.
  bool rendezvous_safe = false;
};

// Proves a lowered schedule, trusting nothing of how it was made: every stage runs each of its
// micro-batches forward once and backward once (whole, or input then weight); every pass reads what
// the pass before it made; each receive gets the message that it names; all ranks come to an end;
// no slot or buffer is overwritten while it lives or read when it does not, and none is left alive;
// the declared numbers of slots and buffers are those used. BadDataError names rank, instruction
// and reason.
absl::StatusOr<PipelineProof> CheckPipeline(const LoweredPipeline& lowered);

// "send activation of stage 1, micro-batch 0, to rank 2"
std::string Describe(const PipelineInstruction& instruction);

}  // namespace trainctl::schedule
