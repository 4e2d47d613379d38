// Computes when each instruction of a step begins and ends, from the duration of each. All simulations except
// folding (fold.h) use this player. It plays all classes together, and each stream continues as soon as its
// waits allow. The run time is linear in the number of instructions. Pure functions; thread-safe.
//
//   TRAINCTL_ASSIGN_OR_RETURN(Played played, Play(step, seconds_of));
//   double step_seconds = played.end_s;
#pragma once

#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "schedule/step.h"
#include "simulate/play_list.h"

namespace trainctl::simulate {

// Times in seconds. The step begins at 0.
struct InstructionTime {
  double begin_s = 0;
  double seconds = 0;
  double end_s() const { return begin_s + seconds; }
};

// Returns the duration of an instruction in seconds. For a send, this is the time for which it occupies the
// link: its bytes divided by the bandwidth. The player calls this once per instruction, except for receives.
// A receive ends when its message has arrived.
using SecondsOf = absl::FunctionRef<double(int own_class, const schedule::Instruction& instruction)>;

struct PlayOptions {
  bool overlap = true;   // whether the streams of a class run in parallel; otherwise one after another
  double latency_s = 0;  // time from the end of a send to the arrival of its message
  // A joined forward and backward take max + (1 - joined_overlap) * min of their two times. With 0, they run
  // one after the other; with 1, the shorter one is free.
  double joined_overlap = 0;
};

struct PlayedClass {
  // The times of each instruction. Joined instructions both have the times of the pair.
  std::vector<InstructionTime> times;
  double busy_s = 0;    // busy time of the compute stream
  double bubble_s = 0;  // Played::end_s minus busy_s
  // Time from the start of the first compute instruction to the end of the last, minus busy_s. This is the
  // bubble of the zero-bubble papers, in which the next step may begin immediately.
  double inner_bubble_s = 0;
};

struct Played {
  std::vector<PlayedClass> classes;
  double end_s = 0;  // end of the last instruction in any class
  // The largest values over the classes.
  double max_bubble_s() const;
  double max_inner_bubble_s() const;
};

// Plays a step that schedule::Check has accepted. Returns InternalError if classes wait for each other
// forever.
absl::StatusOr<Played> Play(const schedule::Step& step, SecondsOf seconds_of,
                            const PlayOptions& options = {});

// Plays a list. `seconds` is the table of durations that PlayList::Item::seconds_index refers to.
Played Play(const PlayList& list, absl::Span<const double> seconds, const PlayOptions& options = {});
// Returns only Played::end_s, which is faster than Play.
double PlayToEnd(const PlayList& list, absl::Span<const double> seconds, const PlayOptions& options = {});

}  // namespace trainctl::simulate
