#include "rpc/node_wire.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "launcher/worker_contract.h"
#include "rpc/wire.h"

namespace trainctl::rpc {
namespace {

constexpr int kMostCores = 1 << 16;
constexpr int kMostWorkers = 1 << 16;  // of a node

void Write(v1::SlotMessage& out, const rendezvous::Slot& slot) {
  out.set_member(slot.member);
  out.set_worker_id(slot.worker_id);
  out.set_threads(slot.threads);
  for (const int core : slot.cores) out.add_cores(core);
}

absl::StatusOr<std::vector<rendezvous::Slot>> ReadSlots(
    const google::protobuf::RepeatedPtrField<v1::SlotMessage>& messages, const std::string& node) {
  std::vector<rendezvous::Slot> slots;
  for (const v1::SlotMessage& message : messages) {
    const int worker_id = static_cast<int>(slots.size());
    rendezvous::Slot slot{launcher::MemberName(node, worker_id),
                          node,
                          worker_id,
                          message.threads(),
                          {message.cores().begin(), message.cores().end()}};
    const auto is_core = [](int core) { return core >= 0 && core < kMostCores; };
    if (message.worker_id() != worker_id || worker_id >= kMostWorkers || message.member() != slot.member ||
        slot.threads < 1 || slot.cores.size() > kMostCores || !absl::c_all_of(slot.cores, is_core)) {
      return UsageError(absl::StrCat("a slot of ", node, " is not one of its workers"));
    }
    slots.push_back(std::move(slot));
  }
  return slots;
}

absl::Duration Ms(int64_t milliseconds) { return absl::Milliseconds(milliseconds); }

void Write(v1::NodeOrder& out, const rendezvous::StartWorkers& what) {
  out.mutable_start()->set_first_rank(what.first_rank);
  for (const rendezvous::Slot& slot : what.slots) Write(*out.mutable_start()->add_slots(), slot);
}
void Write(v1::NodeOrder& out, const rendezvous::EndWorkers& what) {
  out.mutable_end()->set_grace_ms(absl::ToInt64Milliseconds(what.grace));
  out.mutable_end()->set_tail_of(what.tail_of);
}
void Write(v1::NodeOrder& out, const rendezvous::NoteLeft& what) { out.set_note_left(what.worker); }
void Write(v1::NodeOrder& out, const rendezvous::ShowStacks& what) { out.set_show_stacks(what.hung); }
void Write(v1::NodeOrder& out, const rendezvous::FindActivity& what) { out.set_find_activity(what.worker); }

void Write(v1::NodeReport& out, const rendezvous::WorkersNotStarted& what) {
  out.mutable_not_started()->set_code(static_cast<int>(what.why.code()));
  out.mutable_not_started()->set_message(WireText(what.why.message()));
}
void Write(v1::NodeReport& out, const rendezvous::WorkerEnded& what) {
  v1::WorkerEnded& ended = *out.mutable_ended();
  ended.set_worker(what.worker);
  ended.set_clean(what.exited.clean);
  ended.set_crashed(what.exited.crashed);
  ended.set_echo(what.exited.echo);
  ended.set_killed(what.exited.killed);
  ended.set_waited(what.exited.waited);
  ended.set_description(WireText(what.exited.description));
  ended.set_step(what.exited.last.step);
  ended.set_phase(WireText(what.exited.last.phase));
  if (what.exit_code) ended.set_exit_code(*what.exit_code);
}
void Write(v1::NodeReport& out, const rendezvous::BoardsSeen& what) {
  out.mutable_boards();
  for (const auto& [worker, standing] : what.boards) {
    v1::BoardsSeen::Board& board = *out.mutable_boards()->add_boards();
    board.set_worker(worker);
    board.set_step(standing.step);
    board.set_phase(WireText(standing.phase));
    board.set_beats(standing.beats);
    board.set_is_waiting(standing.is_waiting);
    for (const rendezvous::Standing::Group& group : standing.groups) {
      v1::BoardsSeen::Group& each = *board.add_groups();
      each.set_index(group.index);
      each.set_entered(group.entered);
      each.set_left(group.left);
      each.set_waits_for(group.waits_for);
    }
  }
}
void Write(v1::NodeReport& out, const rendezvous::ActivitySeen& what) {
  out.mutable_activity()->set_worker(what.worker);
  out.mutable_activity()->set_activity(what.activity == rendezvous::Activity::kIdle ? v1::ActivitySeen::IDLE
                                       : what.activity == rendezvous::Activity::kStopped
                                           ? v1::ActivitySeen::STOPPED
                                           : v1::ActivitySeen::BUSY);
}
void Write(v1::NodeReport& out, const rendezvous::StacksShown&) { out.set_stacks_shown(true); }
void Write(v1::NodeReport& out, const rendezvous::NodeMessage& what) { out.set_message(WireText(what.text)); }
void Write(v1::NodeReport& out, const rendezvous::NodeEnded& what) {
  out.mutable_node_ended()->set_log_tail(WireText(what.log_tail));
  out.mutable_node_ended()->set_keeper_lost(what.keeper_lost);
}

rendezvous::WorkerEnded ReadEnded(const v1::WorkerEnded& message, const std::string& node) {
  rendezvous::WorkerEnded ended;
  ended.worker = message.worker();
  ended.exited = {launcher::MemberName(node, message.worker()),
                  message.clean(),
                  message.crashed(),
                  WireText(message.description()),
                  {message.step(), WireText(message.phase())},
                  message.echo(),
                  message.killed(),
                  message.waited()};
  if (message.has_exit_code()) ended.exit_code = message.exit_code();
  return ended;
}

rendezvous::BoardsSeen ReadBoards(const v1::BoardsSeen& message) {
  rendezvous::BoardsSeen seen;
  for (const v1::BoardsSeen::Board& board : message.boards()) {
    rendezvous::Standing& standing = seen.boards[board.worker()];
    standing.step = board.step();
    standing.phase = WireText(board.phase());
    standing.beats = board.beats();
    standing.is_waiting = board.is_waiting();
    for (const v1::BoardsSeen::Group& group : board.groups()) {
      standing.groups.push_back({group.index(), group.entered(), group.left(), group.waits_for()});
    }
  }
  return seen;
}

}  // namespace

v1::NodeOrder ToWire(const rendezvous::NodeCommand& command) {
  v1::NodeOrder order;
  order.set_attempt(command.attempt);
  std::visit([&](const auto& what) { Write(order, what); }, command.what);
  return order;
}

absl::StatusOr<rendezvous::NodeCommand> FromWire(const v1::NodeOrder& order, const std::string& node) {
  rendezvous::NodeCommand command;
  command.attempt = order.attempt();
  switch (order.what_case()) {
    case v1::NodeOrder::kStart: {
      rendezvous::StartWorkers start;
      start.first_rank = order.start().first_rank();
      TRAINCTL_ASSIGN_OR_RETURN(start.slots, ReadSlots(order.start().slots(), node));
      if (start.slots.empty() || start.first_rank < 0 ||
          start.first_rank > std::numeric_limits<int>::max() - kMostWorkers) {
        return UsageError(absl::StrCat("the launcher starts ", start.slots.size(), " workers from rank ",
                                       start.first_rank));
      }
      command.what = std::move(start);
      return command;
    }
    case v1::NodeOrder::kEnd:
      command.what = rendezvous::EndWorkers{Ms(order.end().grace_ms()), order.end().tail_of()};
      return command;
    case v1::NodeOrder::kNoteLeft:
      command.what = rendezvous::NoteLeft{order.note_left()};
      return command;
    case v1::NodeOrder::kShowStacks:
      command.what = rendezvous::ShowStacks{order.show_stacks()};
      return command;
    case v1::NodeOrder::kFindActivity:
      command.what = rendezvous::FindActivity{order.find_activity()};
      return command;
    case v1::NodeOrder::WHAT_NOT_SET:
      break;
  }
  return UsageError("the launcher's order is not known to this agent");
}

v1::NodeReport ToWire(const rendezvous::NodeEvent& event) {
  v1::NodeReport report;
  report.set_attempt(event.attempt);
  std::visit([&](const auto& what) { Write(report, what); }, event.what);
  return report;
}

absl::StatusOr<rendezvous::NodeEvent> FromWire(const v1::NodeReport& report, const std::string& node,
                                               int num_workers) {
  const auto is_own = [&](int worker) { return worker >= 0 && worker < num_workers; };
  const absl::Status foreign =
      UsageError(absl::StrCat("a report of ", node, " names a worker that the node does not have"));
  rendezvous::NodeEvent event;
  event.attempt = report.attempt();
  switch (report.what_case()) {
    case v1::NodeReport::kNotStarted:
      event.what = rendezvous::WorkersNotStarted{
          EnvironmentError(absl::StrCat(node, ": ", WireText(report.not_started().message())))};
      return event;
    case v1::NodeReport::kEnded:
      if (!is_own(report.ended().worker())) return foreign;
      event.what = ReadEnded(report.ended(), node);
      return event;
    case v1::NodeReport::kBoards:
      for (const v1::BoardsSeen::Board& board : report.boards().boards()) {
        if (!is_own(board.worker())) return foreign;
      }
      event.what = ReadBoards(report.boards());
      return event;
    case v1::NodeReport::kActivity: {
      if (!is_own(report.activity().worker())) return foreign;
      const v1::ActivitySeen::Activity seen = report.activity().activity();
      event.what = rendezvous::ActivitySeen{
          report.activity().worker(), seen == v1::ActivitySeen::IDLE      ? rendezvous::Activity::kIdle
                                      : seen == v1::ActivitySeen::STOPPED ? rendezvous::Activity::kStopped
                                                                          : rendezvous::Activity::kBusy};
      return event;
    }
    case v1::NodeReport::kStacksShown:
      event.what = rendezvous::StacksShown{};
      return event;
    case v1::NodeReport::kMessage:
      event.what = rendezvous::NodeMessage{absl::StrCat(node, ": ", WireText(report.message()))};
      return event;
    case v1::NodeReport::kNodeEnded:
      event.what =
          rendezvous::NodeEnded{WireText(report.node_ended().log_tail()), report.node_ended().keeper_lost()};
      return event;
    case v1::NodeReport::WHAT_NOT_SET:
      break;
  }
  return UsageError(absl::StrCat("a report of ", node, " is not known to this launcher"));
}

v1::Ready ToWire(const rendezvous::NodeOffer& offer, absl::Time now) {
  v1::Ready ready;
  for (const rendezvous::Slot& slot : offer.slots) Write(*ready.add_slots(), slot);
  v1::NodeFacts& facts = *ready.mutable_facts();
  facts.set_programs(offer.facts.programs);
  facts.set_memory_available_bytes(offer.facts.memory_available_bytes);
  facts.set_num_devices(offer.facts.num_devices);
  facts.set_clock_unix_ms(absl::ToUnixMillis(now));
  facts.set_trainctl(offer.facts.trainctl);
  facts.set_libraries(offer.facts.libraries);
  facts.set_run_files(offer.facts.run_files);
  facts.set_run_free_bytes(offer.facts.run_free_bytes);
  facts.set_temp_free_bytes(offer.facts.temp_free_bytes);
  return ready;
}

absl::StatusOr<rendezvous::NodeOffer> FromWire(const v1::Ready& ready, const std::string& node,
                                               absl::Time now) {
  rendezvous::NodeOffer offer;
  TRAINCTL_ASSIGN_OR_RETURN(offer.slots, ReadSlots(ready.slots(), node));
  if (!ready.has_facts()) return offer;
  const v1::NodeFacts& facts = ready.facts();
  offer.facts.programs = WireText(facts.programs());
  offer.facts.memory_available_bytes = facts.memory_available_bytes();
  offer.facts.num_devices = facts.num_devices();
  offer.facts.trainctl = WireText(facts.trainctl());
  offer.facts.libraries = WireText(facts.libraries());
  offer.facts.run_files = WireText(facts.run_files());
  offer.facts.run_free_bytes = facts.run_free_bytes();
  offer.facts.temp_free_bytes = facts.temp_free_bytes();
  offer.facts.clock_ahead = absl::FromUnixMillis(facts.clock_unix_ms()) - now;
  return offer;
}

v1::Setup ToWire(const rendezvous::NodeSetup& setup) {
  v1::Setup message;
  message.set_run_dir(setup.run_dir);
  message.set_proof(setup.proof);
  message.set_num_workers(setup.num_workers);
  message.set_threads_per_worker(setup.threads_per_worker.value_or(0));
  for (const std::string& arg : setup.worker_args) message.add_worker_args(arg);
  message.mutable_env()->insert(setup.env.begin(), setup.env.end());
  message.set_stop_timeout_ms(absl::ToInt64Milliseconds(setup.stop_timeout));
  message.set_heartbeat_interval_ms(absl::ToInt64Milliseconds(setup.heartbeat_interval));
  message.set_detect_timeout_ms(absl::ToInt64Milliseconds(setup.detect_timeout));
  message.set_log_limit_bytes(setup.log_limit_bytes);
  message.set_coordinator_timeout_ms(absl::ToInt64Milliseconds(setup.coordinator_timeout));
  message.set_interface(setup.interface);
  return message;
}

rendezvous::NodeSetup FromWire(const v1::Setup& message) {
  rendezvous::NodeSetup setup;
  setup.run_dir = message.run_dir();
  setup.proof = message.proof();
  setup.num_workers = message.num_workers();
  if (message.threads_per_worker() > 0) setup.threads_per_worker = message.threads_per_worker();
  setup.worker_args.assign(message.worker_args().begin(), message.worker_args().end());
  setup.env.insert(message.env().begin(), message.env().end());
  setup.stop_timeout = Ms(message.stop_timeout_ms());
  setup.heartbeat_interval = Ms(std::max<int64_t>(message.heartbeat_interval_ms(), 10));
  setup.detect_timeout = Ms(std::max<int64_t>(message.detect_timeout_ms(), 100));
  setup.log_limit_bytes = message.log_limit_bytes();
  setup.coordinator_timeout = Ms(message.coordinator_timeout_ms());
  setup.interface = message.interface();
  return setup;
}

}  // namespace trainctl::rpc
