// Internal to lib/rpc: the server's end of one worker's session, whoever serves it.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <deque>
#include <mutex>
#include <string>

#include "proto/trainctl.pb.h"

namespace trainctl::rpc {

// Takes what the coordinator says to a member.
class MemberSink {
 public:
  virtual ~MemberSink() = default;
  virtual void SendTo(const std::string& member, int64_t incarnation,
                      const v1::CoordinatorMessage& message) = 0;
};

// Owned by gRPC until OnDone, which comes after End.
class WorkerStream : public grpc::ServerBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage>,
                     public MemberSink {
 public:
  class Handler {
   public:
    virtual ~Handler() = default;
    virtual void OnMessage(WorkerStream* stream, const v1::WorkerMessage& message) = 0;
    // Nothing more comes. The handler lets go of the stream, and ends it.
    virtual void OnClosed(WorkerStream* stream) = 0;
  };

  explicit WorkerStream(Handler* handler) : handler_(handler) { StartRead(&incoming_); }
  explicit WorkerStream(const grpc::Status& refusal) : handler_(nullptr) { Finish(refusal); }

  void SendTo(const std::string& member, int64_t incarnation, const v1::CoordinatorMessage& message) override;
  void End(const grpc::Status& status);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone() override { delete this; }

 private:
  Handler* const handler_;
  v1::WorkerMessage incoming_;
  std::mutex mutex_;
  std::deque<v1::CoordinatorMessage> outgoing_;  // the first is being written
  bool finished_ = false;
};

// Who may call: those that can read the token of this socket.
class TokenGuard {
 public:
  void set_token(std::string token) { token_ = std::move(token); }
  // OK or UNAUTHENTICATED, of which the log tells once.
  grpc::Status Check(const grpc::CallbackServerContext& context);

 private:
  std::string token_;
  std::atomic<bool> refused_{false};
};

grpc::ServerUnaryReactor* FinishNow(grpc::CallbackServerContext* context, const grpc::Status& status);

}  // namespace trainctl::rpc
