#include "rpc/worker_stream.h"

#include <utility>

namespace trainctl::rpc {

void WorkerStream::SendTo(const std::string& member, int64_t incarnation,
                          const v1::CoordinatorMessage& message) {
  std::lock_guard lock(mutex_);
  if (finished_) return;
  outgoing_.push_back(message);
  if (outgoing_.size() == 1) StartWrite(&outgoing_.front());
}

void WorkerStream::End(const grpc::Status& status) {
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(finished_, true)) return;
  }
  Finish(status);  // without the lock: OnDone may come, and take the lock along, before this returns
}

void WorkerStream::OnReadDone(bool ok) {
  if (!ok) return handler_->OnClosed(this);
  if (incoming_.member() == member_) {
    handler_->OnMessage(this, incoming_);
  } else {
    End(handler_->OnImpostor(this, incoming_));
  }
  StartRead(&incoming_);
}

void WorkerStream::OnWriteDone(bool ok) {
  std::lock_guard lock(mutex_);
  if (!outgoing_.empty()) outgoing_.pop_front();
  if (ok && !finished_ && !outgoing_.empty()) StartWrite(&outgoing_.front());
}

grpc::ServerUnaryReactor* FinishNow(grpc::CallbackServerContext* context, const grpc::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(status);
  return reactor;
}

}  // namespace trainctl::rpc
