// What the bits of a run depend on beside recipe and data, as its checkpoints keep it, and what to say when a
// run goes on under something else.
#pragma once

#include <string>

namespace trainctl::trainer {

// Counts the changes of what a step computes, to the last bit. A change of it gets a line in
// kNumericsChanges.
constexpr int kNumericsVersion = 4;

// `now` and `before` are JSON objects that name what bits depend on, "layout" or "numerics" for example;
// `before` may be empty: nothing is known. Returns what differs, for people; empty: nothing does.
std::string DescribeChange(const std::string& before, const std::string& now);

}  // namespace trainctl::trainer
