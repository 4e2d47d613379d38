// When each instruction of a step begins and ends, given what each takes: the one player. All classes are
// played together, every stream going on as soon as it can. Time is linear in the number of instructions.
// Pure; thread safe.
#pragma once

#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "schedule/step.h"
#include "simulate/play_list.h"

namespace trainctl::simulate {

// In seconds from the step's begin.
struct InstructionTime {
  double begin_s = 0;
  double seconds = 0;
  double end_s() const { return begin_s + seconds; }
};

// Seconds of an instruction. Of a send: its bytes over the link, which it occupies. Not asked of receives,
// which end when their message has come. Asked once of each other instruction.
using SecondsOf = absl::FunctionRef<double(int own_class, const schedule::Instruction& instruction)>;

struct PlayOptions {
  bool overlap = true;   // the other streams run beside the compute stream; false: they take its time
  double latency_s = 0;  // from the end of a send to the arrival
  // A joined forward and backward take max + (1 - joined_overlap) * min of their two times: 0 one after the
  // other, 1 the shorter one is free.
  double joined_overlap = 0;
};

struct PlayedClass {
  std::vector<InstructionTime> times;  // by instruction
  double busy_s = 0;                   // of the compute stream
  double bubble_s = 0;                 // the step's seconds less the busy ones
  // From the begin of its first compute instruction to the end of its last, less the busy time: what the
  // zero-bubble papers call the bubble, for whom the next step may begin at once.
  double inner_bubble_s = 0;
};

struct Played {
  std::vector<PlayedClass> classes;
  double end_s = 0;  // of the last instruction of all
  double max_bubble_s() const;
  double max_inner_bubble_s() const;
};

// `step` has been checked (schedule::Check); InternalError where it waits for ever.
absl::StatusOr<Played> Play(const schedule::Step& step, SecondsOf seconds_of,
                            const PlayOptions& options = {});

// The same of a list that has been made, and a table of seconds.
Played Play(const PlayList& list, absl::Span<const double> seconds, const PlayOptions& options = {});
// Played::end_s alone.
double PlayToEnd(const PlayList& list, absl::Span<const double> seconds, const PlayOptions& options = {});

}  // namespace trainctl::simulate
