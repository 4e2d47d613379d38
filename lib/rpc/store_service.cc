#include "rpc/store_service.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "rpc/wire.h"

namespace trainctl::rpc {

void StoreService::Handle(CallId id, const v1::StoreRequest& request, Answer answer) {
  if (const absl::Status known = CheckHeader(request.header(), launch_); !known.ok()) {
    return answer(ToGrpc(known), {});
  }
  std::lock_guard lock(mutex_);
  v1::StoreReply reply;
  *reply.mutable_header() = request.header();
  grpc::Status status;
  if (table_.TryAnswer(request, &reply, &status)) {
    answer(status, std::move(reply));
    if (status.ok()) WakeWaiting();
  } else if (!aborted_.empty()) {
    answer({grpc::StatusCode::ABORTED, aborted_}, {});
  } else {
    waiting_.push_back({id, request, std::move(answer)});
  }
}

void StoreService::WakeWaiting() {
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    v1::StoreReply reply;
    *reply.mutable_header() = it->request.header();
    grpc::Status status;
    if (!table_.TryAnswer(it->request, &reply, &status)) {
      ++it;
      continue;
    }
    it->answer(status, std::move(reply));
    it = waiting_.erase(it);
  }
}

bool StoreService::Cancel(CallId id) {
  std::lock_guard lock(mutex_);
  return waiting_.remove_if([&](const Call& call) { return call.id == id; }) > 0;
}

void StoreService::CancelAllOf(const void* owner) {
  std::lock_guard lock(mutex_);
  waiting_.remove_if([&](const Call& call) { return call.id.owner == owner; });
}

void StoreService::StartGeneration(int64_t generation) {
  AbortWaiting(absl::StrCat("generation ", generation, " has begun"));
  std::lock_guard lock(mutex_);
  table_.StartGeneration(generation);
  aborted_.clear();
}

void StoreService::AbortWaiting(const std::string& reason) {
  std::lock_guard lock(mutex_);
  aborted_ = reason;
  for (const Call& call : waiting_) call.answer({grpc::StatusCode::ABORTED, reason}, {});
  waiting_.clear();
}

}  // namespace trainctl::rpc
