#include "rpc/store_client.h"

#include <grpcpp/client_context.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/life_signs.h"
#include "base/status.h"
#include "rpc/wire.h"

namespace trainctl::rpc {
namespace {

// For calls that the server answers at once.
constexpr absl::Duration kCallTimeout = absl::Seconds(30);

v1::StoreRequest Request(v1::StoreRequest::Operation operation, absl::Span<const std::string> keys) {
  v1::StoreRequest request;
  request.set_operation(operation);
  for (const std::string& key : keys) request.add_keys(key);
  return request;
}

v1::StoreRequest Request(v1::StoreRequest::Operation operation, absl::string_view key) {
  v1::StoreRequest request;
  request.set_operation(operation);
  request.add_keys(key.data(), key.size());
  return request;
}

std::vector<uint8_t> ToBytes(const std::string& text) { return {text.begin(), text.end()}; }

}  // namespace

absl::StatusOr<v1::StoreReply> StoreClient::Call(v1::StoreRequest request, absl::Duration timeout) {
  *request.mutable_header() = MakeHeader(pass_.launch, generation_, incarnation_);
  grpc::ClientContext context;
  context.AddMetadata(kTokenKey, pass_.token);
  // A year is as good as forever and does not overflow.
  context.set_deadline(absl::ToChronoTime(absl::Now() + std::min(timeout, absl::Hours(24 * 365))));
  v1::StoreReply reply;
  const grpc::Status status = stub_->Store(&context, request, &reply);
  if (status.ok()) {
    TRAINCTL_RETURN_IF_ERROR(CheckHeader(reply.header(), pass_.launch));
    return reply;
  }
  const std::string keys = absl::StrJoin(request.keys(), "', '");
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    return absl::DeadlineExceededError(
        absl::StrCat("no value for key '", keys, "' within ", absl::FormatDuration(timeout)));
  }
  return FromGrpc(status, absl::StrCat("job store, key '", keys, "'"));
}

absl::Status StoreClient::Set(absl::string_view key, absl::Span<const uint8_t> value) {
  v1::StoreRequest request = Request(v1::StoreRequest::SET, key);
  request.set_value(value.data(), value.size());
  return Call(std::move(request), kCallTimeout).status();
}

absl::StatusOr<std::vector<uint8_t>> StoreClient::Get(absl::string_view key, absl::Duration timeout) {
  const WaitingForOthers waiting;
  TRAINCTL_ASSIGN_OR_RETURN(const v1::StoreReply reply, Call(Request(v1::StoreRequest::GET, key), timeout));
  return ToBytes(reply.value());
}

absl::StatusOr<std::vector<uint8_t>> StoreClient::CompareSet(absl::string_view key,
                                                             absl::Span<const uint8_t> expected,
                                                             absl::Span<const uint8_t> desired) {
  v1::StoreRequest request = Request(v1::StoreRequest::COMPARE_SET, key);
  request.set_expected(expected.data(), expected.size());
  request.set_value(desired.data(), desired.size());
  TRAINCTL_ASSIGN_OR_RETURN(const v1::StoreReply reply, Call(std::move(request), kCallTimeout));
  return ToBytes(reply.value());
}

absl::StatusOr<int64_t> StoreClient::Add(absl::string_view key, int64_t delta) {
  v1::StoreRequest request = Request(v1::StoreRequest::ADD, key);
  request.set_delta(delta);
  TRAINCTL_ASSIGN_OR_RETURN(const v1::StoreReply reply, Call(std::move(request), kCallTimeout));
  return reply.number();
}

absl::StatusOr<bool> StoreClient::Check(absl::Span<const std::string> keys) {
  TRAINCTL_ASSIGN_OR_RETURN(const v1::StoreReply reply,
                            Call(Request(v1::StoreRequest::CHECK, keys), kCallTimeout));
  return reply.flag();
}

absl::Status StoreClient::Wait(absl::Span<const std::string> keys, absl::Duration timeout) {
  const WaitingForOthers waiting;
  return Call(Request(v1::StoreRequest::WAIT, keys), timeout).status();
}

absl::StatusOr<bool> StoreClient::Delete(absl::string_view key) {
  TRAINCTL_ASSIGN_OR_RETURN(const v1::StoreReply reply,
                            Call(Request(v1::StoreRequest::DELETE, key), kCallTimeout));
  return reply.flag();
}

absl::StatusOr<int64_t> StoreClient::NumKeys() {
  TRAINCTL_ASSIGN_OR_RETURN(
      const v1::StoreReply reply,
      Call(Request(v1::StoreRequest::NUM_KEYS, absl::Span<const std::string>()), kCallTimeout));
  return reply.number();
}

}  // namespace trainctl::rpc
