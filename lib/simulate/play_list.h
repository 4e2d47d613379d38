// A compact form of a step for the player (play.h). It has the instructions of all classes in one list, and
// each comes after all instructions that it waits for. Make a list once and play it with many tables of
// durations. Pure functions; thread-safe.
//
//   TRAINCTL_ASSIGN_OR_RETURN(PlayList list, MakePlayList(step, index_of));
//   for (const std::vector<double>& seconds : tables) Use(PlayToEnd(list, seconds));
#pragma once

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "schedule/step.h"

namespace trainctl::simulate {

struct PlayList {
  enum class Kind : uint8_t {
    kRun,
    kRunJoined,  // a backward that runs together with the forward that its last wait refers to
    kReceive,    // a receive; its last wait refers to the send of the message
    kJoined,     // a forward that runs with a later kRunJoined; marks its earliest start
    kMeet,       // not an instruction: a class joins a collective; the last one waits for the others
  };
  struct Item {
    Kind kind = Kind::kRun;
    uint32_t stream = 0;         // index into stream_classes
    uint32_t seconds_index = 0;  // index into the player's table of durations; unused for receives
    uint32_t waits_end = 0;      // end of its waits in `waits`; they begin at the previous item's waits_end
  };
  std::vector<Item> items;
  std::vector<uint32_t> waits;             // indices into `items`
  std::vector<uint32_t> stream_classes;    // class of each stream, the streams of the first class first
  std::vector<uint32_t> compute_streams;   // compute stream of each class, as an index into stream_classes
  std::vector<uint32_t> num_instructions;  // number of instructions of each class
};

// Returns the index of an instruction's duration in the table with which the list is played. Called once per
// instruction, except for receives, in the order of the classes and of their programs.
using SecondsIndexOf = absl::FunctionRef<uint32_t(int own_class, const schedule::Instruction& instruction)>;

// Makes the list of a step that schedule::Check has accepted. Returns InternalError if classes wait for each
// other forever.
absl::StatusOr<PlayList> MakePlayList(const schedule::Step& step, SecondsIndexOf index_of);

// The parts of a program that a list is made from. With these, a list can be made without keeping all
// programs of the step in memory.
struct PlayProgram {
  struct Fact {
    schedule::Op op = schedule::Op::kForward;
    bool joined = false;
    int stream = 0;
    int peer = -1;
    uint32_t seconds_index = 0;
    uint32_t waits_end = 0;   // end in `waits`, as in PlayList::Item
    uint32_t groups_end = 0;  // the same in `groups`
  };
  size_t num_streams = 0;
  std::vector<Fact> facts;  // one per instruction
  std::vector<int> waits;   // indices of instructions
  std::vector<int> groups;  // groups of the instructions that are neither passes nor messages
};
// Returns these parts of the program of class `own_class`.
PlayProgram FactsOf(const schedule::Program& program, int own_class, SecondsIndexOf index_of);

// Makes a list from the programs of all classes. `order` is the step's name for error messages. Errors as
// above.
absl::StatusOr<PlayList> MakePlayList(absl::string_view order, absl::Span<const PlayProgram> programs,
                                      absl::Span<const schedule::Group> groups);

}  // namespace trainctl::simulate
