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
#include "base/names.h"
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
  // Rides on the next order, for all messages until then: an agent that does not read piles up no answers
  // here.
  void Acknowledge(uint64_t seq) {
    std::lock_guard lock(mutex_);
    if (finished_) return;
    if (outgoing_.size() > 1) {  // the first is being written
      outgoing_.back().set_acked(seq);
      return;
    }
    outgoing_.emplace_back().set_acked(seq);
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
    {
      std::lock_guard lock(mutex_);
      if (std::exchange(finished_, true)) return;
    }
    Finish(status);  // without the lock: OnDone may come, and take the lock along, before this returns
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
  bool is_greeted = false;  // used by OnMessage alone

 private:
  AgentHub* const hub_;
  const std::string node_;
  v1::AgentMessage incoming_;
  std::mutex mutex_;
  std::deque<v1::AgentOrder> outgoing_;  // the first is being written
  bool finished_ = false;
};

AgentHub::AgentHub(const rendezvous::NetworkOptions& options, absl::Duration detect, const Clock& clock,
                   Handler* handler)
    : options_(options), detect_(detect), handler_(handler), clock_(clock), refusals_(clock) {}

AgentHub::~AgentHub() = default;

absl::Status AgentHub::Start(grpc::Service* also) {
  TRAINCTL_ASSIGN_OR_RETURN(authority_, JobAuthority::Create(options_.job, clock_));
  TRAINCTL_ASSIGN_OR_RETURN(const Credential own,
                            authority_->Issue({Role::kCoordinator, "launch"}, options_.addresses));
  TRAINCTL_ASSIGN_OR_RETURN(const auto credentials, MakeServerCredentials(own));
  TRAINCTL_ASSIGN_OR_RETURN(
      gate_, ConnectionGate::Listen(options_.addresses, ConnectionGate::DefaultLimits(), &refusals_));
  grpc::ServerBuilder builder;
  SetServerLimits(builder);
  auto acceptor = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, credentials);
  builder.RegisterService(this);
  if (also != nullptr) builder.RegisterService(also);
  server_ = builder.BuildAndStart();
  if (server_ != nullptr && !gate_->endpoints().empty()) {
    gate_->Open(std::move(acceptor));
    return absl::OkStatus();
  }
  return EnvironmentError(absl::StrCat("cannot listen for the nodes' agents on ",
                                       absl::StrJoin(options_.addresses, ", "),
                                       "; launch.interface names another"));
}

absl::StatusOr<AdminAccess> AgentHub::MakeAdminAccess() const {
  TRAINCTL_ASSIGN_OR_RETURN(Credential credential, authority_->Issue({Role::kAdmin, "admin"}));
  return AdminAccess{options_.job, gate_->endpoints(), std::move(credential)};
}

void AgentHub::Shutdown(absl::Duration patience) {
  gate_.reset();
  if (server_ == nullptr) return;
  server_->Shutdown(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(patience));
  server_->Wait();
}

absl::StatusOr<std::string> AgentHub::Invite(const std::string& node) {
  TRAINCTL_ASSIGN_OR_RETURN(const std::string token, authority_->MakeToken(node));
  const Json json = {{"schema", kInvitationSchema},     {"job", options_.job},        {"node", node},
                     {"endpoints", gate_->endpoints()}, {"ca", authority_->ca_pem()}, {"token", token}};
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
      lost.push_back({node, absl::StrCat("no word from its agent for ",
                                         absl::FormatDuration(absl::Trunc(quiet, absl::Milliseconds(1))),
                                         " (launch.detect_timeout is ", absl::FormatDuration(detect_), ")")});
    }
    for (Lost& each : lost) {
      const auto it = streams_.find(each.node);
      // Not touched after this lock: its end may come at any time. OnClosed comes first, and lets go of it.
      it->second->End({grpc::StatusCode::DEADLINE_EXCEEDED, each.why});
      streams_.erase(it);
    }
  }
  for (Lost& each : lost) {
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

std::string AgentHub::CallerNode(const grpc::ServerContextBase& context) {
  const std::optional<Identity> caller = PeerIdentity(context, options_.job);
  if (caller && caller->role == Role::kAgent && absl::c_linear_search(options_.nodes, caller->name)) {
    return caller->name;
  }
  refusals_.Add(RefusalLog::Kind::kCall,
                "a call to the agents' port was refused: its caller is no agent of this job");
  return "";
}

grpc::ServerUnaryReactor* AgentHub::Enroll(grpc::CallbackServerContext* context,
                                           const v1::EnrollRequest* request, v1::EnrollReply* reply) {
  const absl::StatusOr<std::string> certificate =
      authority_->Enroll(request->node(), request->token(), request->certificate_request());
  if (!certificate.ok()) {
    refusals_.Add(RefusalLog::Kind::kEnrolment,
                  absl::StrCat("an agent was refused: ", certificate.status().message()));
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

void AgentHub::Refuse(Stream* stream, const absl::Status& why) {
  Lose(stream, std::string(why.message()));
  stream->End(ToGrpc(why));
}

void AgentHub::Greet(Stream* stream, const v1::AgentMessage& message) {
  if (std::exchange(stream->is_greeted, true)) {
    return Refuse(stream, absl::FailedPreconditionError("its agent said hello twice"));
  }
  if (message.protocol_version() > kProtocolVersion || message.job() != options_.job) {
    return stream->End({grpc::StatusCode::FAILED_PRECONDITION,
                        absl::StrCat("the agent speaks protocol ", message.protocol_version(), " for job ",
                                     QuotedName(message.job()), ", this launcher up to ", kProtocolVersion,
                                     " for job ", options_.job)});
  }
  bool is_first = false;
  {
    std::lock_guard lock(mutex_);
    is_first = streams_.emplace(stream->node(), stream).second;
  }
  if (!is_first) {
    return stream->End({grpc::StatusCode::ALREADY_EXISTS,
                        absl::StrCat(stream->node(), " has an agent in this job already")});
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
  if (!stream->is_greeted) {
    return stream->End({grpc::StatusCode::FAILED_PRECONDITION, "an agent says hello first"});
  }
  {
    std::lock_guard lock(mutex_);
    const auto it = streams_.find(stream->node());
    if (it == streams_.end() || it->second != stream) return;  // refused, or lost
  }
  bool is_answered = true;
  switch (message.body_case()) {
    case v1::AgentMessage::kReady: {
      absl::StatusOr<std::vector<rendezvous::Slot>> slots = FromWire(message.ready(), stream->node());
      if (!slots.ok()) return Refuse(stream, slots.status());
      if (slots->size() != static_cast<size_t>(options_.setup.num_workers)) {
        return Refuse(stream, UsageError(absl::StrCat("it offers ", slots->size(), " workers, not ",
                                                      options_.setup.num_workers)));
      }
      News(stream->node(), *std::move(slots));
      break;
    }
    case v1::AgentMessage::kNotReady:
      return Refuse(stream, absl::FailedPreconditionError(WireText(message.not_ready().why())));
    case v1::AgentMessage::kWorker:
      if (!absl::StartsWith(message.worker().member(), launcher::MemberPrefix(stream->node()))) {
        return Refuse(stream, absl::PermissionDeniedError("its agent spoke for a worker of another node"));
      }
      handler_->OnWorkerMessage(stream, message.worker());
      is_answered = !message.worker().has_heartbeat();
      break;
    case v1::AgentMessage::kReport: {
      absl::StatusOr<rendezvous::NodeEvent> event =
          FromWire(message.report(), stream->node(), options_.setup.num_workers);
      if (!event.ok()) return Refuse(stream, event.status());
      News(stream->node(), *std::move(event));
      break;
    }
    case v1::AgentMessage::kLines:
      for (const v1::WorkerLines::Line& line : message.lines().lines()) {
        News(stream->node(), rendezvous::NodeNews::Line{line.rank(), WireText(line.text())});
      }
      if (message.lines().num_dropped() > 0) {
        News(stream->node(), rendezvous::NodeNews::Dropped{message.lines().num_dropped()});
      }
      break;
    case v1::AgentMessage::kStop:
      handler_->OnStop(absl::StrCat(stream->node(), ": ", WireText(message.stop().reason())));
      break;
    default:
      break;  // a beat, or what only newer agents know
  }
  if (is_answered) stream->Acknowledge(message.seq());
}

void AgentHub::OnClosed(Stream* stream) {
  Lose(stream, "its agent has ended");
  handler_->OnNodeClosed(stream);
}

}  // namespace trainctl::rpc
