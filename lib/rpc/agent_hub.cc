#include "rpc/agent_hub.h"

#include <grpcpp/server_builder.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/json.h"
#include "base/logging.h"
#include "base/network.h"
#include "base/status.h"
#include "launcher/worker_contract.h"
#include "rpc/node_wire.h"
#include "rpc/tls.h"
#include "rpc/wire.h"

namespace trainctl::rpc {
namespace {

constexpr char kInvitationSchema[] = "trainctl.invitation.v1";

}  // namespace

// One agent's stream. Owned by gRPC until OnDone.
class AgentHub::Stream : public grpc::ServerBidiReactor<v1::AgentMessage, v1::AgentOrder>, public MemberSink {
 public:
  Stream(AgentHub* hub, std::string node) : hub_(hub), node_(std::move(node)) { StartRead(&incoming_); }
  explicit Stream(const grpc::Status& refusal) : hub_(nullptr) { Finish(refusal); }

  const std::string& node() const { return node_; }
  void Send(v1::AgentOrder order) {
    std::lock_guard lock(mutex_);
    if (finished_) return;
    outgoing_.push_back(std::move(order));
    if (outgoing_.size() == 1) StartWrite(&outgoing_.front());
  }
  void SendTo(const std::string& member, int64_t incarnation,
              const v1::CoordinatorMessage& message) override {
    v1::AgentOrder order;
    order.mutable_member()->set_member(member);
    order.mutable_member()->set_incarnation(incarnation);
    *order.mutable_member()->mutable_message() = message;
    Send(std::move(order));
  }
  void End(const grpc::Status& status) {
    std::lock_guard lock(mutex_);
    if (std::exchange(finished_, true)) return;
    Finish(status);
  }
  void OnReadDone(bool ok) override {
    if (!ok) {
      hub_->OnClosed(this);
      return End(grpc::Status::OK);
    }
    last_heard_ms = absl::ToInt64Milliseconds(hub_->clock_.Monotonic());
    hub_->OnMessage(this, incoming_);
    StartRead(&incoming_);
  }
  void OnWriteDone(bool ok) override {
    std::lock_guard lock(mutex_);
    if (!outgoing_.empty()) outgoing_.pop_front();
    if (ok && !finished_ && !outgoing_.empty()) StartWrite(&outgoing_.front());
  }
  void OnDone() override { delete this; }

  std::atomic<int64_t> last_heard_ms{0};

 private:
  AgentHub* const hub_;
  const std::string node_;
  v1::AgentMessage incoming_;
  std::mutex mutex_;
  std::deque<v1::AgentOrder> outgoing_;  // the first is being written
  bool finished_ = false;
};

AgentHub::AgentHub(const rendezvous::NetworkOptions& options, absl::Duration detect, Handler* handler)
    : options_(options), detect_(detect), handler_(handler) {}

AgentHub::~AgentHub() = default;

absl::Status AgentHub::Start(grpc::Service* also) {
  TRAINCTL_ASSIGN_OR_RETURN(authority_, JobAuthority::Create(options_.job, clock_));
  TRAINCTL_ASSIGN_OR_RETURN(const Credential own,
                            authority_->Issue({Role::kCoordinator, "launch"}, options_.addresses));
  TRAINCTL_ASSIGN_OR_RETURN(const auto credentials, MakeServerCredentials(own));
  grpc::ServerBuilder builder;
  SetServerLimits(builder);
  std::vector<int> ports(options_.addresses.size(), 0);
  for (size_t i = 0; i < ports.size(); ++i) {
    const std::string& address = options_.addresses[i];
    builder.AddListeningPort(
        absl::StrContains(address, ':') ? absl::StrCat("[", address, "]:0") : absl::StrCat(address, ":0"),
        credentials, &ports[i]);
  }
  builder.RegisterService(this);
  builder.RegisterService(also);
  server_ = builder.BuildAndStart();
  for (size_t i = 0; i < ports.size(); ++i) {
    if (ports[i] > 0) endpoints_.push_back(FormatEndpoint(options_.addresses[i], ports[i]));
  }
  if (server_ != nullptr && !endpoints_.empty()) return absl::OkStatus();
  return EnvironmentError(absl::StrCat("cannot listen for the nodes' agents on ",
                                       absl::StrJoin(options_.addresses, ", "),
                                       "; launch.interface names another"));
}

absl::StatusOr<AdminAccess> AgentHub::MakeAdminAccess() const {
  TRAINCTL_ASSIGN_OR_RETURN(Credential credential, authority_->Issue({Role::kAdmin, "admin"}));
  return AdminAccess{options_.job, endpoints_, std::move(credential)};
}

void AgentHub::Shutdown(absl::Duration patience) {
  if (server_ == nullptr) return;
  server_->Shutdown(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(patience));
  server_->Wait();
}

absl::StatusOr<std::string> AgentHub::Invite(const std::string& node) {
  TRAINCTL_ASSIGN_OR_RETURN(const std::string token, authority_->MakeToken(node));
  const Json json = {{"schema", kInvitationSchema}, {"job", options_.job},        {"node", node},
                     {"endpoints", endpoints_},     {"ca", authority_->ca_pem()}, {"token", token}};
  return json.dump();
}

absl::StatusOr<Invitation> ReadInvitation(const std::string& text) {
  const std::string where = "the invitation";
  TRAINCTL_ASSIGN_OR_RETURN(const Json json, ParseJson(text, where));
  TRAINCTL_ASSIGN_OR_RETURN(const std::string schema, JsonString(json, "schema", where));
  if (schema != kInvitationSchema) {
    return UsageError(absl::StrCat("the invitation is a ", schema, ", this agent reads ", kInvitationSchema));
  }
  Invitation invitation;
  TRAINCTL_ASSIGN_OR_RETURN(invitation.job, JsonString(json, "job", where));
  TRAINCTL_ASSIGN_OR_RETURN(invitation.node, JsonString(json, "node", where));
  TRAINCTL_ASSIGN_OR_RETURN(invitation.ca_pem, JsonString(json, "ca", where));
  TRAINCTL_ASSIGN_OR_RETURN(invitation.token, JsonString(json, "token", where));
  const auto endpoints = json.find("endpoints");
  if (endpoints == json.end() || !endpoints->is_array() || endpoints->empty()) {
    return UsageError("the invitation names no address of the launcher");
  }
  for (const Json& endpoint : *endpoints) {
    if (!endpoint.is_string()) return UsageError("the invitation names no address of the launcher");
    invitation.endpoints.push_back(endpoint.get<std::string>());
  }
  return invitation;
}

void AgentHub::News(const std::string& node, decltype(rendezvous::NodeNews::what) what) {
  handler_->OnNews({node, std::move(what)});
}

void AgentHub::Send(const std::string& node, const rendezvous::NodeCommand& command) {
  v1::AgentOrder order;
  *order.mutable_order() = ToWire(command);
  std::lock_guard lock(mutex_);
  if (const auto it = streams_.find(node); it != streams_.end()) it->second->Send(std::move(order));
}

void AgentHub::Dismiss() {
  v1::AgentOrder order;
  order.mutable_farewell();
  std::lock_guard lock(mutex_);
  dismissed_ = true;
  for (const auto& [node, stream] : streams_) stream->Send(order);
}

void AgentHub::LoseSilent() {
  const absl::Duration now = clock_.Monotonic();
  struct Lost {
    Stream* stream;
    std::string node;
    std::string why;
  };
  std::vector<Lost> lost;
  {
    std::lock_guard lock(mutex_);
    // If the time between two looks is long, it was this process that stood still: agents are given that
    // time.
    const absl::Duration gap = now - std::exchange(last_look_, now);
    for (const auto& [node, stream] : streams_) {
      if (gap > detect_ / 2) stream->last_heard_ms = absl::ToInt64Milliseconds(now);
      const absl::Duration quiet = now - absl::Milliseconds(stream->last_heard_ms.load());
      if (quiet <= detect_) continue;
      lost.push_back({stream, node,
                      absl::StrCat("no word from its agent for ",
                                   absl::FormatDuration(absl::Trunc(quiet, absl::Milliseconds(1))),
                                   " (launch.detect_timeout is ", absl::FormatDuration(detect_), ")")});
    }
    for (Lost& each : lost) {
      // Not touched after this lock: its end may come at any time.
      each.stream->End({grpc::StatusCode::DEADLINE_EXCEEDED, each.why});
      streams_.erase(each.node);
    }
  }
  for (Lost& each : lost) {
    handler_->OnNodeClosed(each.stream);
    News(each.node, rendezvous::NodeNews::Gone{std::move(each.why)});
  }
}

bool AgentHub::Lose(Stream* stream, const std::string& why) {
  {
    std::lock_guard lock(mutex_);
    const auto it = streams_.find(stream->node());
    if (it == streams_.end() || it->second != stream) return false;
    streams_.erase(it);
    if (dismissed_) return true;
  }
  News(stream->node(), rendezvous::NodeNews::Gone{why});
  return true;
}

// ---- the service --------------------------------------------------------------------------------

std::string AgentHub::CallerNode(const grpc::ServerContextBase& context) const {
  const std::optional<Identity> caller = PeerIdentity(context, options_.job);
  if (!caller || caller->role != Role::kAgent || !absl::c_linear_search(options_.nodes, caller->name))
    return "";
  return caller->name;
}

grpc::ServerUnaryReactor* AgentHub::Enroll(grpc::CallbackServerContext* context,
                                           const v1::EnrollRequest* request, v1::EnrollReply* reply) {
  const absl::StatusOr<std::string> certificate =
      authority_->Enroll(request->node(), request->token(), request->certificate_request());
  if (!certificate.ok()) {
    LogWarning(absl::StrCat("an agent was refused: ", certificate.status().message()));
    return FinishNow(context, ToGrpc(certificate.status()));
  }
  reply->set_certificate(*certificate);
  return FinishNow(context, grpc::Status::OK);
}

grpc::ServerBidiReactor<v1::AgentMessage, v1::AgentOrder>* AgentHub::Node(
    grpc::CallbackServerContext* context) {
  std::string node = CallerNode(*context);
  if (!node.empty()) return new Stream(this, std::move(node));
  return new Stream({grpc::StatusCode::UNAUTHENTICATED, "only an agent of this job may call"});
}

grpc::ServerUnaryReactor* AgentHub::Store(grpc::CallbackServerContext* context,
                                          const v1::StoreRequest* request, v1::StoreReply* reply) {
  if (!CallerNode(*context).empty()) return handler_->OnStore(request, reply);
  return FinishNow(context, {grpc::StatusCode::UNAUTHENTICATED, "only an agent of this job may call"});
}

// ---- one agent ----------------------------------------------------------------------------------

void AgentHub::Greet(Stream* stream, const v1::AgentMessage& message) {
  if (message.protocol_version() > kProtocolVersion || message.job() != options_.job) {
    return stream->End(
        {grpc::StatusCode::FAILED_PRECONDITION,
         absl::StrCat("the agent speaks protocol ", message.protocol_version(), " for job ", message.job(),
                      ", this launcher up to ", kProtocolVersion, " for job ", options_.job)});
  }
  {
    std::lock_guard lock(mutex_);
    if (!streams_.emplace(stream->node(), stream).second) {
      return stream->End({grpc::StatusCode::ALREADY_EXISTS,
                          absl::StrCat(stream->node(), " has an agent in this job already")});
    }
  }
  v1::AgentOrder order;
  {
    std::lock_guard lock(mutex_);
    if (dismissed_) {  // it comes too late
      order.mutable_farewell();
    } else {
      *order.mutable_setup() = ToWire(options_.setup);
    }
  }
  stream->Send(std::move(order));
}

void AgentHub::OnMessage(Stream* stream, const v1::AgentMessage& message) {
  if (message.has_hello()) return Greet(stream, message);
  {
    std::lock_guard lock(mutex_);
    const auto it = streams_.find(stream->node());
    if (it == streams_.end() || it->second != stream) return;  // not greeted, or lost
  }
  const auto refuse = [&](const absl::Status& status) {
    if (Lose(stream, std::string(status.message()))) handler_->OnNodeClosed(stream);
    stream->End(ToGrpc(status));
  };
  bool is_answered = true;
  switch (message.body_case()) {
    case v1::AgentMessage::kReady: {
      absl::StatusOr<std::vector<rendezvous::Slot>> slots = FromWire(message.ready(), stream->node());
      if (!slots.ok()) return refuse(slots.status());
      News(stream->node(), *std::move(slots));
      break;
    }
    case v1::AgentMessage::kNotReady:
      return refuse(absl::FailedPreconditionError(message.not_ready().why()));
    case v1::AgentMessage::kWorker:
      if (!absl::StartsWith(message.worker().member(), launcher::MemberPrefix(stream->node()))) {
        return refuse(absl::PermissionDeniedError("its agent spoke for a worker of another node"));
      }
      handler_->OnWorkerMessage(stream, message.worker());
      is_answered = !message.worker().has_heartbeat();
      break;
    case v1::AgentMessage::kReport: {
      absl::StatusOr<rendezvous::NodeEvent> event =
          FromWire(message.report(), stream->node(), options_.setup.num_workers);
      if (!event.ok()) return refuse(event.status());
      News(stream->node(), *std::move(event));
      break;
    }
    case v1::AgentMessage::kLines:
      for (const v1::WorkerLines::Line& line : message.lines().lines()) {
        News(stream->node(), rendezvous::NodeNews::Line{line.rank(), WireText(line.text())});
      }
      break;
    case v1::AgentMessage::kStop:
      handler_->OnStop(absl::StrCat(stream->node(), ": ", message.stop().reason()));
      break;
    default:
      break;  // a beat, or what only newer agents know
  }
  if (!is_answered) return;
  v1::AgentOrder order;
  order.set_acked(message.seq());
  stream->Send(std::move(order));
}

void AgentHub::OnClosed(Stream* stream) {
  Lose(stream, "its agent has ended");
  handler_->OnNodeClosed(stream);
}

}  // namespace trainctl::rpc
