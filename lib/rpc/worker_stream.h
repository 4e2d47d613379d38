// Internal to lib/rpc: the server's end of one worker's session, used by both the launcher and the agents.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <deque>
#include <mutex>
#include <string>
#include <utility>

#include "proto/trainctl.pb.h"

namespace trainctl::rpc {

// Receives the coordinator's messages to members.
class MemberSink {
 public:
  virtual ~MemberSink() = default;
  virtual void SendTo(const std::string& member, int64_t incarnation,
                      const v1::CoordinatorMessage& message) = 0;
};

// One worker's session, in which the worker may act only as its own member. Owned by gRPC until OnDone, which
// follows End.
class WorkerStream : public grpc::ServerBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage>,
                     public MemberSink {
 public:
  class Handler {
   public:
    virtual ~Handler() = default;
    virtual void OnMessage(WorkerStream* stream, const v1::WorkerMessage& message) = 0;
    // Called when the worker claims to be another member. The stream ends with the returned status.
    virtual grpc::Status OnImpostor(WorkerStream* stream, const v1::WorkerMessage& message) = 0;
    // Called when the stream has ended. The handler must drop its pointer to the stream and call End.
    virtual void OnClosed(WorkerStream* stream) = 0;
  };

  WorkerStream(Handler* handler, std::string member) : handler_(handler), member_(std::move(member)) {
    StartRead(&incoming_);
  }
  explicit WorkerStream(const grpc::Status& refusal) : handler_(nullptr) { Finish(refusal); }

  void SendTo(const std::string& member, int64_t incarnation, const v1::CoordinatorMessage& message) override;
  void End(const grpc::Status& status);
  const std::string& member() const { return member_; }  // the member whose token the worker presented

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone() override { delete this; }

 private:
  Handler* const handler_;
  const std::string member_;
  v1::WorkerMessage incoming_;
  std::mutex mutex_;
  std::deque<v1::CoordinatorMessage> outgoing_;  // messages to write; the first one is being written
  bool finished_ = false;
};

grpc::ServerUnaryReactor* FinishNow(grpc::CallbackServerContext* context, const grpc::Status& status);

}  // namespace trainctl::rpc
