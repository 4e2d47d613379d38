// A step as the player reads it: the instructions of all classes in one list, a few bytes each, in an order
// in which every one comes after what it waits for. Make it once, play it with many costs. Pure; thread safe.
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
    kRunJoined,  // a backward, together with the forward that its last wait names
    kReceive,    // ends when the message has come that its last wait sends
    kJoined,     // a forward that runs with a later item: only stands where it could begin
    kMeet,       // no instruction: a class is at a meeting; the last one there waits for the others
  };
  struct Item {
    Kind kind = Kind::kRun;
    uint32_t stream = 0;         // position in stream_classes
    uint32_t seconds_index = 0;  // what it takes, in the player's table; of receives: nothing
    uint32_t waits_end = 0;      // its waits begin where those of the item before end
  };
  std::vector<Item> items;
  std::vector<uint32_t> waits;             // items
  std::vector<uint32_t> stream_classes;    // streams of the first class, then of the second, ...
  std::vector<uint32_t> compute_streams;   // by class: position in stream_classes
  std::vector<uint32_t> num_instructions;  // by class
};

// Where an instruction's seconds are in the table that the list is played with. Asked once of each
// instruction but receives, class after class, in the order of their programs.
using SecondsIndexOf = absl::FunctionRef<uint32_t(int own_class, const schedule::Instruction& instruction)>;

// `step` has been checked (schedule::Check); InternalError where it waits for ever.
absl::StatusOr<PlayList> MakePlayList(const schedule::Step& step, SecondsIndexOf index_of);

// What of a program counts for that, where there is no step to keep: lists are made of those of all classes.
struct PlayProgram {
  struct Fact {
    schedule::Op op = schedule::Op::kForward;
    bool joined = false;
    int stream = 0;
    int peer = -1;
    uint32_t seconds_index = 0;
    uint32_t waits_end = 0;
    uint32_t groups_end = 0;
  };
  size_t num_streams = 0;
  std::vector<Fact> facts;  // by instruction
  std::vector<int> waits;   // instructions
  std::vector<int> groups;  // of what is neither pass nor message
};
PlayProgram FactsOf(const schedule::Program& program, int own_class, SecondsIndexOf index_of);

// `order`: the step's name, for messages. Errors as above.
absl::StatusOr<PlayList> MakePlayList(absl::string_view order, absl::Span<const PlayProgram> programs,
                                      absl::Span<const schedule::Group> groups);

}  // namespace trainctl::simulate
