// Internal to lib/rpc: serves the agents of a job's nodes over TCP with mutual TLS. It decides which agents
// may connect, sends them orders, and detects when they are lost. Since an agent is identified by its
// certificate, it can lose its connection and reconnect. Thread-safe; its handler may call back into it.
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
    // Called for each message from a node's worker. The coordinator's messages to that worker must be sent to
    // `sink` until OnNodeClosed. `sink` also owns the worker's store calls.
    virtual void OnWorkerMessage(MemberSink* sink, const v1::WorkerMessage& message) = 0;
    virtual void OnNodeClosed(MemberSink* sink) = 0;
    virtual void OnNews(rendezvous::NodeNews news) = 0;
    virtual void OnStop(const std::string& reason) = 0;
    virtual void OnStore(StoreService::CallId id, const v1::StoreRequest& request,
                         StoreService::Answer answer) = 0;
    virtual void OnStoreCancel(StoreService::CallId id) = 0;
  };

  // `clock`, `refusals` and `handler` must outlive it.
  AgentHub(Launch launch, const rendezvous::NetworkOptions& options, const rendezvous::Timeouts& timeouts,
           const Clock& clock, RefusalLog* refusals, Handler* handler);
  ~AgentHub() override;

  // Listens on the configured port, or on a free one, at each address. Returns EnvironmentError if it cannot
  // listen.
  absl::Status Start();
  // Ends all streams and calls within `patience` and stops serving.
  void Shutdown(absl::Duration patience);

  // Returns an invitation for the agent of `node`; see invitation.h.
  absl::StatusOr<std::string> Invite(const std::string& node);
  void Send(const std::string& node, const rendezvous::NodeCommand& command);
  void Dismiss(bool is_finished);
  // Whether every agent that ever connected has exited or been lost.
  bool AllLeft();
  // Notes that the command that started the agent of `node` has exited; `why` describes how. A connected
  // agent may stay, but if its connection breaks, the hub does not wait for it to reconnect.
  void NoteCommandEnded(const std::string& node, const std::string& why);
  // Whether the node's agent is currently disconnected.
  bool IsAway(const std::string& node);
  // Gives up on agents that have been silent or disconnected for too long.
  void LoseSilent();

  grpc::ServerUnaryReactor* Enroll(grpc::CallbackServerContext* context, const v1::EnrollRequest* request,
                                   v1::EnrollReply* reply) override;
  grpc::ServerBidiReactor<v1::AgentMessage, v1::AgentOrder>* Node(
      grpc::CallbackServerContext* context) override;

 private:
  // Returns the node in the caller's certificate, or an empty string if the caller is not an agent.
  std::string CallerNode(const grpc::ServerContextBase& context);
  void OnMessage(AgentStream* stream, const v1::AgentMessage& message) override;
  void OnClosed(AgentStream* stream) override;
  void Greet(AgentStream* stream, const v1::AgentMessage& message);
  // Returns an error unless the message is from this launch and from the agent whose certificate the stream
  // presented.
  absl::Status CheckSender(const AgentStream& stream, const v1::Header& header);
  // Rejects an agent: ends its stream and logs the refusal.
  void TurnAway(AgentStream* stream, const grpc::Status& why);
  void LoseReplaced(const AgentStream& by);
  void CarryOut(AgentSession* session, const v1::AgentMessage& message);
  void Refuse(AgentSession* session, const absl::Status& why);
  // Gives up on the node and reports it as lost. Does nothing if it was already lost.
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
  Credential bootstrap_;  // credential included in every invitation
  std::unique_ptr<TlsServer> server_;

  std::mutex mutex_;
  std::map<std::string, int64_t> incarnations_;  // agents' incarnations, by certificate
  // The sessions of all agents that ever connected, by certificate.
  std::map<std::string, std::unique_ptr<AgentSession>> sessions_;
  std::map<std::string, AgentSession*> current_;     // sessions of the agents that are not lost, by node
  std::map<std::string, std::string> command_ends_;  // how the agent's command ended, by node
  std::optional<v1::Farewell> farewell_;             // set once the job is over
  absl::Duration last_look_ = -absl::InfiniteDuration();
};

}  // namespace trainctl::rpc
