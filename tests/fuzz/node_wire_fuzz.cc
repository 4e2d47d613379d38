// Fuzzes what coordinator and agents tell each other: bytes as they come into orders, reports, offers and
// setups, and orders that could be read into an agent. What was read is written and read back the same.

#include <fuzzer/FuzzedDataProvider.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "launcher/worker_contract.h"
#include "rendezvous/agent.h"
#include "rpc/node_wire.h"

namespace trainctl::rpc {
namespace {

constexpr char kNode[] = "n0";
constexpr int kNumWorkers = 3;

template <typename Message>
Message Some(FuzzedDataProvider& in) {
  Message message;
  (void)message.ParseFromString(in.ConsumeRandomLengthString(256));  // what could be read until then stays
  return message;
}

// An order that says what one could, to any worker.
v1::NodeOrder SomeOrder(FuzzedDataProvider& in, int64_t attempt) {
  v1::NodeOrder order;
  order.set_attempt(attempt + in.ConsumeIntegralInRange(-1, 1));
  const int worker =
      in.ConsumeBool() ? in.ConsumeIntegralInRange(-1, kNumWorkers) : in.ConsumeIntegral<int>();
  switch (in.ConsumeIntegralInRange(0, 4)) {
    case 0:
      order.mutable_start()->set_first_rank(in.ConsumeIntegral<int>());
      for (int i = 0; i < in.ConsumeIntegralInRange(0, kNumWorkers); ++i) {
        v1::SlotMessage& slot = *order.mutable_start()->add_slots();
        slot.set_member(launcher::MemberName(kNode, i));
        slot.set_worker_id(i);
        slot.set_threads(1);
      }
      break;
    case 1:
      order.mutable_end()->set_grace_ms(in.ConsumeIntegral<int64_t>());
      order.mutable_end()->set_tail_of(worker);
      break;
    case 2:
      order.set_note_left(worker);
      break;
    case 3:
      order.set_show_stacks(worker);
      break;
    default:
      order.set_find_activity(worker);
  }
  return order;
}

void CheckReport(const v1::NodeReport& report) {
  const auto event = FromWire(report, kNode, kNumWorkers);
  if (!event.ok()) return;
  if (const auto* ended = std::get_if<rendezvous::WorkerEnded>(&event->what)) {
    TRAINCTL_CHECK(ended->worker >= 0 && ended->worker < kNumWorkers);
    TRAINCTL_CHECK(ended->exited.member == launcher::MemberName(kNode, ended->worker));
  }
  if (const auto* seen = std::get_if<rendezvous::BoardsSeen>(&event->what)) {
    for (const auto& [worker, standing] : seen->boards) TRAINCTL_CHECK(worker >= 0 && worker < kNumWorkers);
  }
  TRAINCTL_CHECK(FromWire(ToWire(*event), kNode, kNumWorkers).ok());
}

void Fuzz(FuzzedDataProvider& in) {
  rendezvous::Agent agent(rendezvous::AgentOptions{});
  absl::Duration now = absl::ZeroDuration();
  while (in.remaining_bytes() > 0) {
    now += absl::Milliseconds(in.ConsumeIntegralInRange(0, 60'000));
    const v1::NodeOrder order = in.ConsumeBool() ? SomeOrder(in, agent.attempt()) : Some<v1::NodeOrder>(in);
    const auto command = FromWire(order, kNode);
    if (command.ok()) {
      TRAINCTL_CHECK(FromWire(ToWire(*command), kNode).ok());
      (void)agent.Decide(now, *command);
    }
    if (in.ConsumeBool()) (void)agent.Decide(now, rendezvous::AgentTick{});
    if (in.ConsumeBool()) (void)agent.Decide(now, rendezvous::ProcessesGone{});
    if (in.ConsumeBool()) (void)agent.Decide(now, rendezvous::StacksTaken{});
    CheckReport(Some<v1::NodeReport>(in));
    const absl::Time clock = absl::UnixEpoch() + now;
    const auto offer = FromWire(Some<v1::Ready>(in), kNode, clock);
    if (offer.ok()) {
      const auto again = FromWire(ToWire(*offer, clock), kNode, clock);
      TRAINCTL_CHECK(again.ok() && again->slots.size() == offer->slots.size());
    }
    const rendezvous::NodeSetup setup = FromWire(Some<v1::Setup>(in));
    TRAINCTL_CHECK(setup.heartbeat_interval > absl::ZeroDuration());
    (void)ToWire(setup);
  }
}

}  // namespace
}  // namespace trainctl::rpc

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  FuzzedDataProvider in(data, size_bytes);
  trainctl::rpc::Fuzz(in);
  return 0;
}
