// Fuzzes what comes over the wire: workers' messages into the coordinator, requests into the job's store,
// assignments into a worker. Half of the messages are bytes as they come, half are well formed and told in an
// order that no worker would.

#include <fuzzer/FuzzedDataProvider.h>

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "rendezvous/assignment.h"
#include "rendezvous/coordinator.h"
#include "rpc/store_table.h"
#include "rpc/wire.h"

namespace trainctl::rpc {
namespace {

constexpr int kMembers = 3;

v1::WorkerMessage SomeWorkerMessage(FuzzedDataProvider& in, const rendezvous::Coordinator& coordinator) {
  v1::WorkerMessage message;
  message.set_member(absl::StrCat("node/", in.ConsumeIntegralInRange(0, kMembers)));  // one is unknown
  message.mutable_header()->set_incarnation(in.ConsumeIntegralInRange(0, 3));
  message.mutable_header()->set_generation(coordinator.generation() - in.ConsumeIntegralInRange(0, 2));
  switch (in.ConsumeIntegralInRange(0, 5)) {
    case 0:
      message.mutable_join()->set_pid(in.ConsumeIntegral<int64_t>());
      break;
    case 1:
      message.mutable_ack()->set_assignment_hash(in.ConsumeBool() ? coordinator.assignment_hash()
                                                                  : in.ConsumeIntegral<uint64_t>());
      break;
    case 2:
      message.mutable_heartbeat()->set_step(in.ConsumeIntegral<int64_t>());
      break;
    case 3:
      message.mutable_failure()->set_message(in.ConsumeRandomLengthString(20));
      message.mutable_failure()->set_peer_failed(in.ConsumeBool());
      break;
    case 4:
      message.mutable_leave()->set_stopped(in.ConsumeBool());
      break;
    default:
      break;
  }
  return message;
}

v1::StoreRequest SomeStoreRequest(FuzzedDataProvider& in) {
  v1::StoreRequest request;
  request.mutable_header()->set_generation(in.ConsumeIntegralInRange(0, 2));
  request.set_operation(static_cast<v1::StoreRequest::Operation>(in.ConsumeIntegralInRange(0, 9)));
  for (int i = in.ConsumeIntegralInRange(0, 2); i > 0; --i) request.add_keys(in.ConsumeRandomLengthString(2));
  request.set_value(in.ConsumeRandomLengthString(8));
  request.set_expected(in.ConsumeRandomLengthString(8));
  request.set_delta(in.ConsumeIntegral<int64_t>());
  return request;
}

rendezvous::Expect Everybody() {
  rendezvous::Expect expect;
  for (int i = 0; i < kMembers; ++i) {
    expect.slots.push_back({.member = absl::StrCat("node/", i), .node = "node", .worker_id = i});
  }
  return expect;
}

std::optional<rendezvous::Event> NextEvent(FuzzedDataProvider& in,
                                           const rendezvous::Coordinator& coordinator) {
  switch (in.ConsumeIntegralInRange(0, 6)) {
    case 0: {
      v1::WorkerMessage message;
      if (!message.ParseFromString(in.ConsumeRandomLengthString(64))) return std::nullopt;
      return EventOf(message);
    }
    case 1:
      return Everybody();
    case 2:
      return rendezvous::Exited{absl::StrCat("node/", in.ConsumeIntegralInRange(0, kMembers)),
                                in.ConsumeBool(), in.ConsumeBool(), "ended"};
    case 3:
      return rendezvous::Tick{};
    case 4:
      return rendezvous::Recorded{coordinator.generation() - in.ConsumeIntegralInRange(0, 1)};
    default:
      return EventOf(SomeWorkerMessage(in, coordinator));
  }
}

void Fuzz(FuzzedDataProvider& in) {
  rendezvous::Coordinator coordinator(rendezvous::Timeouts::FromDetect(absl::Seconds(3)), 1, 0);
  coordinator.Decide(absl::ZeroDuration(), Everybody());
  StoreTable store;
  absl::Duration now = absl::ZeroDuration();
  while (in.remaining_bytes() > 0) {
    now += absl::Milliseconds(in.ConsumeIntegralInRange(0, 2000));
    const int64_t before = coordinator.generation();
    if (const auto event = NextEvent(in, coordinator)) {
      const rendezvous::Decision decision = coordinator.Decide(now, *event);
      TRAINCTL_CHECK(coordinator.generation() >= before);
      for (const rendezvous::Command& command : decision.commands)
        TRAINCTL_CHECK(command.generation <= coordinator.generation());
    }
    if (coordinator.generation() != before) store.StartGeneration(coordinator.generation());
    TRAINCTL_CHECK(coordinator.Members(now).size() == kMembers);
    v1::StoreRequest request;
    if (in.ConsumeBool()) {
      request = SomeStoreRequest(in);
    } else if (!request.ParseFromString(in.ConsumeRandomLengthString(64))) {
      continue;
    }
    v1::StoreReply reply;
    grpc::Status status;
    (void)store.TryAnswer(request, &reply, &status);
    TRAINCTL_CHECK(store.stored_bytes() <= kMaxStoreBytes);
  }
  // A blob is taken back as it was written, or refused.
  if (!coordinator.assignment_bytes().empty())
    TRAINCTL_CHECK(rendezvous::ParseAssignment(coordinator.assignment_bytes()).ok());
}

}  // namespace
}  // namespace trainctl::rpc

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size_bytes);
  (void)trainctl::rendezvous::ParseAssignment(bytes);
  FuzzedDataProvider in(data, size_bytes);
  trainctl::rpc::Fuzz(in);
  return 0;
}
