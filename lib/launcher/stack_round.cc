#include "launcher/stack_round.h"

#include <utility>

namespace trainctl::launcher {

StackRound::StackRound(absl::Duration now, std::vector<int> workers, StackLimits limits)
    : order_(std::move(workers)), limits_(limits), num_left_(order_.size()) {
  for (const int worker : order_) workers_[worker] = {State::kAsked, now + limits_.patience};
}

StackRound::Worker* StackRound::Find(int worker) {
  const auto it = workers_.find(worker);
  return it == workers_.end() ? nullptr : &it->second;
}

StackRound::Orders StackRound::Next(absl::Duration now) {
  Orders orders;
  for (const int id : order_) {
    Worker& worker = workers_[id];
    if (worker.state == State::kAsked && now >= worker.until) {
      worker.state = State::kRead;
      orders.read.push_back(id);
    }
    if (worker.state == State::kAnswering && now >= worker.until) worker.state = State::kWaiting;
    if (worker.state != State::kWaiting) continue;
    if (limits_.num_debuggers == 0 || num_debugged_ >= limits_.max_debugged) {
      Finish(worker);
    } else if (num_debuggers_ < limits_.num_debuggers) {
      ++num_debuggers_;
      ++num_debugged_;
      worker.state = State::kDebugged;
      orders.debug.push_back(id);
    }
  }
  return orders;
}

void StackRound::NoteAnswer(absl::Duration now, int worker) {
  Worker* const answering = Find(worker);
  if (answering == nullptr || answering->state != State::kAsked) return;
  *answering = {State::kAnswering, now + limits_.writing};
}

void StackRound::NoteRead(int worker) {
  Worker* const read = Find(worker);
  if (read != nullptr && read->state == State::kRead) read->state = State::kWaiting;
}

void StackRound::NoteDebugged(int worker) {
  Worker* const debugged = Find(worker);
  if (debugged == nullptr || debugged->state != State::kDebugged) return;
  --num_debuggers_;
  Finish(*debugged);
}

// The debugger of one that ends does so by itself.
void StackRound::NoteExit(int worker) {
  Worker* const ended = Find(worker);
  if (ended != nullptr && ended->state != State::kDebugged && ended->state != State::kDone) Finish(*ended);
}

void StackRound::Finish(Worker& worker) {
  worker.state = State::kDone;
  --num_left_;
}

}  // namespace trainctl::launcher
