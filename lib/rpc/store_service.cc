#include "rpc/store_service.h"

#include "absl/strings/str_cat.h"

namespace trainctl::rpc {
class StoreService::Call : public grpc::ServerUnaryReactor {
 public:
  Call(StoreService* service, const v1::StoreRequest* request, v1::StoreReply* reply)
      : service_(service), request_(request), reply_(reply) {}
  void OnCancel() override { service_->Cancel(this); }
  void OnDone() override { delete this; }
  const v1::StoreRequest& request() const { return *request_; }
  v1::StoreReply* reply() const { return reply_; }

 private:
  StoreService* const service_;
  const v1::StoreRequest* const request_;
  v1::StoreReply* const reply_;
};

grpc::ServerUnaryReactor* StoreService::Handle(const v1::StoreRequest* request, v1::StoreReply* reply) {
  auto* call = new Call(this, request, reply);
  std::lock_guard lock(mutex_);
  grpc::Status status;
  if (table_.TryAnswer(*request, reply, &status)) {
    call->Finish(status);
    if (status.ok()) WakeWaiting();
    return call;
  }
  if (!aborted_.empty()) {
    call->Finish(grpc::Status(grpc::StatusCode::ABORTED, aborted_));
  } else {
    waiting_.push_back(call);
  }
  return call;
}

void StoreService::WakeWaiting() {
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    Call* call = *it;
    grpc::Status status;
    if (table_.TryAnswer(call->request(), call->reply(), &status)) {
      it = waiting_.erase(it);
      call->Finish(status);
    } else {
      ++it;
    }
  }
}

void StoreService::Cancel(Call* call) {
  std::lock_guard lock(mutex_);
  for (auto it = waiting_.begin(); it != waiting_.end(); ++it) {
    if (*it != call) continue;
    waiting_.erase(it);
    call->Finish(grpc::Status::CANCELLED);
    return;
  }
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
  for (Call* call : waiting_) call->Finish(grpc::Status(grpc::StatusCode::ABORTED, reason));
  waiting_.clear();
}

}  // namespace trainctl::rpc
