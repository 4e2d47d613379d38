// Internal to lib/rpc: serves the agents of a job's nodes over TCP with mutual TLS: who may come, what they
// are told, and whether they are still there. An agent is known by its certificate, so it may lose its
// connection and come back. Thread safe; never calls its handler with a lock held that a call to it needs.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "proto/trainctl.grpc.pb.h"
#include "rendezvous/service.h"
#include "rpc/agent_session.h"
#include "rpc/grpc_log.h"
#include "rpc/header.h"
#include "rpc/job_authority.h"
#include "rpc/store_service.h"
#include "rpc/tls_server.h"

namespace trainctl::rpc {

class AgentHub : public v1::Agents::CallbackService, private AgentStream::Handler {
 public:
  class Handler {
   public:
    virtual ~Handler() = default;
    // Of a worker of a node. What the coordinator says to it goes to `sink`, until OnNodeClosed; its store
    // calls have the sink as their owner.
    virtual void OnWorkerMessage(MemberSink* sink, const v1::WorkerMessage& message) = 0;
    virtual void OnNodeClosed(MemberSink* sink) = 0;
    virtual void OnNews(rendezvous::NodeNews news) = 0;
    virtual void OnStop(const std::string& reason) = 0;
    virtual void OnStore(StoreService::CallId id, const v1::StoreRequest& request,
                         StoreService::Answer answer) = 0;
    virtual void OnStoreCancel(StoreService::CallId id) = 0;
  };

  // `clock`, `refusals` and `handler` outlive it.
  AgentHub(Launch launch, const rendezvous::NetworkOptions& options, const rendezvous::Timeouts& timeouts,
           const Clock& clock, RefusalLog* refusals, Handler* handler);
  ~AgentHub() override;

  // Listens on the port, or a free one, of each address. EnvironmentError if it cannot.
  absl::Status Start();
  // Ends all streams and calls, within `patience`; nothing is served afterwards.
  void Shutdown(absl::Duration patience);

  // For the agent of `node`: see invitation.h.
  absl::StatusOr<std::string> Invite(const std::string& node);
  void Send(const std::string& node, const rendezvous::NodeCommand& command);
  void Dismiss(bool is_finished);
  // Whether no agent is left that was there.
  bool AllLeft();
  // The command that started the agent of `node` has ended, `why` says how. An agent that is there may stay,
  // but is not waited for when it goes away.
  void NoteCommandEnded(const std::string& node, const std::string& why);
  // Whether its agent has no connection now.
  bool IsAway(const std::string& node);
  // Loses the agents that have been silent or away for too long.
  void LoseSilent();

  grpc::ServerUnaryReactor* Enroll(grpc::CallbackServerContext* context, const v1::EnrollRequest* request,
                                   v1::EnrollReply* reply) override;
  grpc::ServerBidiReactor<v1::AgentMessage, v1::AgentOrder>* Node(
      grpc::CallbackServerContext* context) override;

 private:
  // The node of the caller's certificate; empty: it may not call.
  std::string CallerNode(const grpc::ServerContextBase& context);
  void OnMessage(AgentStream* stream, const v1::AgentMessage& message) override;
  void OnClosed(AgentStream* stream) override;
  void Greet(AgentStream* stream, const v1::AgentMessage& message);
  // Whether a message is of this launch and of the agent with the certificate of that stream.
  absl::Status CheckSender(const AgentStream& stream, const v1::Header& header);
  // Ends the stream of an agent that is not wanted; the log tells.
  void TurnAway(AgentStream* stream, const grpc::Status& why);
  void LoseReplaced(const AgentStream& by);
  void CarryOut(AgentSession* session, const v1::AgentMessage& message);
  void Refuse(AgentSession* session, const absl::Status& why);
  // Gives the node up and tells; nothing if that was done before.
  void Lose(AgentSession* session, const std::string& why, const grpc::Status& status);
  bool IsCurrent(const AgentSession* session);
  void News(const std::string& node, decltype(rendezvous::NodeNews::what) what);

  const Launch launch_;
  const rendezvous::NetworkOptions options_;
  const rendezvous::Timeouts timeouts_;
  Handler* const handler_;
  const Clock& clock_;
  RefusalLog* const refusals_;
  const HandshakeWatch handshakes_{refusals_};
  std::unique_ptr<JobAuthority> authority_;
  Credential bootstrap_;  // in every invitation
  std::unique_ptr<TlsServer> server_;

  std::mutex mutex_;
  std::map<std::string, int64_t> incarnations_;                    // of agents, by certificate
  std::map<std::string, std::unique_ptr<AgentSession>> sessions_;  // by certificate, of all that ever came
  std::map<std::string, AgentSession*> current_;                   // by node, of those that are not lost
  std::map<std::string, std::string> command_ends_;                // by node: how its agent's command ended
  std::optional<v1::Farewell> farewell_;                           // once the job is over
  absl::Duration last_look_ = -absl::InfiniteDuration();
};

}  // namespace trainctl::rpc
