// Internal to lib/rpc: the server's end of one worker's session, whoever serves it.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <deque>
#include <mutex>
#include <string>
#include <utility>

#include "proto/trainctl.pb.h"

namespace trainctl::rpc {

// Takes what the coordinator says to a member.
class MemberSink {
 public:
  virtual ~MemberSink() = default;
  virtual void SendTo(const std::string& member, int64_t incarnation,
                      const v1::CoordinatorMessage& message) = 0;
};

// Of one worker, which may speak for its own member alone. Owned by gRPC until OnDone, which comes after End.
class WorkerStream : public grpc::ServerBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage>,
                     public MemberSink {
 public:
  class Handler {
   public:
    virtual ~Handler() = default;
    virtual void OnMessage(WorkerStream* stream, const v1::WorkerMessage& message) = 0;
    // The worker spoke as another member. The stream ends with what is returned.
    virtual grpc::Status OnImpostor(WorkerStream* stream, const v1::WorkerMessage& message) = 0;
    // Nothing more comes. The handler lets go of the stream, and ends it.
    virtual void OnClosed(WorkerStream* stream) = 0;
  };

  WorkerStream(Handler* handler, std::string member) : handler_(handler), member_(std::move(member)) {
    StartRead(&incoming_);
  }
  explicit WorkerStream(const grpc::Status& refusal) : handler_(nullptr) { Finish(refusal); }

  void SendTo(const std::string& member, int64_t incarnation, const v1::CoordinatorMessage& message) override;
  void End(const grpc::Status& status);
  const std::string& member() const { return member_; }  // by the token that it came with

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone() override { delete this; }

 private:
  Handler* const handler_;
  const std::string member_;
  v1::WorkerMessage incoming_;
  std::mutex mutex_;
  std::deque<v1::CoordinatorMessage> outgoing_;  // the first is being written
  bool finished_ = false;
};

grpc::ServerUnaryReactor* FinishNow(grpc::CallbackServerContext* context, const grpc::Status& status);

}  // namespace trainctl::rpc
