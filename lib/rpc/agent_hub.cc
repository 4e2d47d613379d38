#include "rpc/agent_hub.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/names.h"
#include "base/status.h"
#include "launcher/worker_contract.h"
#include "rpc/invitation.h"
#include "rpc/job_secret.h"
#include "rpc/node_wire.h"
#include "rpc/tls.h"
#include "rpc/wire.h"

namespace trainctl::rpc {
AgentHub::AgentHub(Launch launch, const rendezvous::NetworkOptions& options,
                   const rendezvous::Timeouts& timeouts, const Clock& clock, RefusalLog* refusals,
                   Handler* handler)
    : launch_(std::move(launch)),
      options_(options),
      timeouts_(timeouts),
      handler_(handler),
      clock_(clock),
      refusals_(refusals) {}

AgentHub::~AgentHub() = default;

absl::Status AgentHub::Start() {
  if (options_.secret_path.empty()) {
    TRAINCTL_ASSIGN_OR_RETURN(authority_, JobAuthority::Create(launch_.job, clock_));
  } else {
    TRAINCTL_ASSIGN_OR_RETURN(const std::string text, ReadSecret(options_.secret_path));
    TRAINCTL_ASSIGN_OR_RETURN(const JobSecret secret, ParseJobSecret(text));
    TRAINCTL_ASSIGN_OR_RETURN(authority_, JobAuthority::Open(launch_.job, secret, clock_));
  }
  TRAINCTL_ASSIGN_OR_RETURN(const Credential own,
                            authority_->Issue({Role::kCoordinator, "launch"}, options_.addresses));
  TRAINCTL_ASSIGN_OR_RETURN(bootstrap_, authority_->Issue({Role::kBootstrap, "agent"}));
  // The connections have no shared memory limit, because one agent's large message would then end the streams
  // of honest agents (docs/design/security.md).
  TRAINCTL_ASSIGN_OR_RETURN(server_, TlsServer::Start({.addresses = options_.addresses,
                                                       .port = options_.port,
                                                       .what = "the agents' port",
                                                       .max_message_bytes = kMaxMessageBytes},
                                                      own, this, refusals_));
  server_->Open();
  return absl::OkStatus();
}

void AgentHub::Shutdown(absl::Duration patience) {
  if (server_ != nullptr) server_->Shutdown(patience);
}

absl::StatusOr<std::string> AgentHub::Invite(const std::string& node) {
  Invitation invitation{.job = launch_.job,
                        .node = node,
                        .run_dir = options_.setup.run_dir,
                        .endpoints = server_->endpoints(),
                        .bootstrap = bootstrap_};
  TRAINCTL_ASSIGN_OR_RETURN(invitation.token, authority_->MakeToken(node));
  return FormatInvitation(invitation);
}

void AgentHub::News(const std::string& node, decltype(rendezvous::NodeNews::what) what) {
  handler_->OnNews({node, std::move(what)});
}

void AgentHub::Send(const std::string& node, const rendezvous::NodeCommand& command) {
  v1::AgentOrder order;
  *order.mutable_order() = ToWire(command);
  std::lock_guard lock(mutex_);
  if (const auto it = current_.find(node); it != current_.end()) it->second->Send(std::move(order));
}

void AgentHub::Dismiss(bool is_finished) {
  std::lock_guard lock(mutex_);
  farewell_.emplace().set_is_finished(is_finished);
  v1::AgentOrder order;
  *order.mutable_farewell() = *farewell_;
  for (const auto& [node, session] : current_) session->Send(order);
}

bool AgentHub::AllLeft() {
  std::lock_guard lock(mutex_);
  return current_.empty();
}

void AgentHub::NoteCommandEnded(const std::string& node, const std::string& why) {
  AgentSession* session = nullptr;
  {
    std::lock_guard lock(mutex_);
    if (const auto it = current_.find(node); it != current_.end()) {
      session = it->second;
      command_ends_[node] = why;
    }
  }
  if (session == nullptr) {
    News(node, rendezvous::NodeNews::Gone{why});
  } else if (session->away_since()) {
    Lose(session, why, {grpc::StatusCode::FAILED_PRECONDITION, why});
  }
}

bool AgentHub::IsAway(const std::string& node) {
  std::lock_guard lock(mutex_);
  const auto it = current_.find(node);
  return it != current_.end() && it->second->away_since();
}

void AgentHub::LoseSilent() {
  const absl::Duration now = clock_.Monotonic();
  struct Lost {
    AgentSession* session;
    std::string why;
  };
  std::vector<Lost> lost;
  {
    std::lock_guard lock(mutex_);
    // If the time between two looks is long, it was this process that stood still: agents are given that
    // time.
    const bool stood_still = now - std::exchange(last_look_, now) > timeouts_.detect / 2;
    for (const auto& [node, session] : current_) {
      if (stood_still) session->Hear(now);
      const std::optional<absl::Duration> away_since = session->away_since();
      if (now - session->last_heard() > timeouts_.detect) {
        lost.push_back({session, absl::StrCat("no word from its agent for ",
                                              absl::FormatDuration(absl::Trunc(now - session->last_heard(),
                                                                               absl::Milliseconds(1))),
                                              " (launch.detect_timeout is ",
                                              absl::FormatDuration(timeouts_.detect), ")")});
      } else if (away_since && now - std::max(*away_since, session->last_heard()) > timeouts_.away) {
        lost.push_back(
            {session, absl::StrCat("the connection to its agent broke, and it did not come back")});
      }
    }
  }
  for (const Lost& each : lost) {
    Lose(each.session, each.why, {grpc::StatusCode::DEADLINE_EXCEEDED, each.why});
  }
}

void AgentHub::Lose(AgentSession* session, const std::string& why, const grpc::Status& status) {
  bool is_dismissed = false;
  {
    std::lock_guard lock(mutex_);
    const auto it = current_.find(session->node());
    if (it == current_.end() || it->second != session) return;
    current_.erase(it);
    command_ends_.erase(session->node());
    is_dismissed = farewell_.has_value();
  }
  session->End(status);
  handler_->OnNodeClosed(session);
  if (!is_dismissed) News(session->node(), rendezvous::NodeNews::Gone{why});
}

bool AgentHub::IsCurrent(const AgentSession* session) {
  std::lock_guard lock(mutex_);
  const auto it = current_.find(session->node());
  return it != current_.end() && it->second == session;
}

// ---- the service --------------------------------------------------------------------------------

std::string AgentHub::CallerNode(const grpc::ServerContextBase& context) {
  const std::optional<Identity> caller = PeerIdentity(context, launch_.job);
  if (caller && caller->role == Role::kAgent && absl::c_linear_search(options_.nodes, caller->name)) {
    server_->Welcome(context);
    return caller->name;
  }
  refusals_->Add(RefusalLog::Kind::kCall,
                 "a call to the agents' port was refused: its caller is no agent of this job");
  return "";
}

grpc::ServerUnaryReactor* AgentHub::Enroll(grpc::CallbackServerContext* context,
                                           const v1::EnrollRequest* request, v1::EnrollReply* reply) {
  const absl::StatusOr<std::string> certificate =
      request->nonce().empty()
          ? authority_->Enroll(request->node(), request->token(), request->certificate_request())
          : authority_->EnrollWithKey(request->node(), request->nonce(), request->token(),
                                      request->certificate_request());
  if (!certificate.ok()) {
    refusals_->Add(RefusalLog::Kind::kEnrolment,
                   absl::StrCat("an agent was refused: ", certificate.status().message()));
    return FinishNow(context, ToGrpc(certificate.status()));
  }
  server_->Welcome(*context);
  reply->set_certificate(*certificate);
  std::lock_guard lock(mutex_);
  const int64_t next = static_cast<int64_t>(incarnations_.size()) + 1;
  const int64_t incarnation = incarnations_.try_emplace(*certificate, next).first->second;
  *reply->mutable_header() = MakeHeader(launch_, 0, incarnation);
  return FinishNow(context, grpc::Status::OK);
}

grpc::ServerBidiReactor<v1::AgentMessage, v1::AgentOrder>* AgentHub::Node(
    grpc::CallbackServerContext* context) {
  std::string node = CallerNode(*context);
  if (!node.empty()) return new AgentStream(this, std::move(node), PeerCertificate(*context));
  return new AgentStream({grpc::StatusCode::UNAUTHENTICATED, "only an agent of this job may call"});
}

// ---- one agent ----------------------------------------------------------------------------------

void AgentHub::Refuse(AgentSession* session, const absl::Status& why) {
  Lose(session, std::string(why.message()), ToGrpc(why));
}

absl::Status AgentHub::CheckSender(const AgentStream& stream, const v1::Header& header) {
  TRAINCTL_RETURN_IF_ERROR(CheckHeader(header, launch_));
  std::lock_guard lock(mutex_);
  const auto it = incarnations_.find(stream.certificate());
  if (it != incarnations_.end() && it->second == header.incarnation()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("a message is of incarnation ", header.incarnation(), ", which is another agent's"));
}

void AgentHub::TurnAway(AgentStream* stream, const grpc::Status& why) {
  refusals_->Add(RefusalLog::Kind::kAgent,
                 absl::StrCat("the agent of ", stream->node(), " was refused: ", why.error_message()));
  stream->End(why);
}

void AgentHub::Greet(AgentStream* stream, const v1::AgentMessage& message) {
  if (message.protocol_version() > kProtocolVersion) {
    return TurnAway(stream, {grpc::StatusCode::FAILED_PRECONDITION,
                             absl::StrCat("the agent speaks protocol ", message.protocol_version(),
                                          ", this launcher up to ", kProtocolVersion)});
  }
  LoseReplaced(*stream);
  std::lock_guard lock(mutex_);
  const auto current = current_.find(stream->node());
  const auto [known, is_new] = sessions_.try_emplace(stream->certificate());
  if (is_new && current != current_.end()) {
    sessions_.erase(known);
    return TurnAway(stream, {grpc::StatusCode::ALREADY_EXISTS,
                             absl::StrCat(stream->node(), " has an agent in this job already")});
  }
  if (!is_new && (current == current_.end() || current->second != known->second.get())) {
    return TurnAway(stream, {grpc::StatusCode::FAILED_PRECONDITION,
                             "it was away for too long: the launcher continues without it"});
  }
  if (is_new) {
    known->second = std::make_unique<AgentSession>(stream->node(), message.header(), clock_.Monotonic());
    current_[stream->node()] = known->second.get();
    v1::AgentOrder order;
    if (farewell_) {  // it comes too late
      *order.mutable_farewell() = *farewell_;
    } else {
      *order.mutable_setup() = ToWire(options_.setup);
    }
    known->second->Send(std::move(order));
  }
  stream->session = known->second.get();
  stream->session->Attach(stream, message.acked());
}

// An agent that is away is not waited for once there is another.
void AgentHub::LoseReplaced(const AgentStream& by) {
  AgentSession* replaced = nullptr;
  {
    std::lock_guard lock(mutex_);
    const auto it = current_.find(by.node());
    if (it == current_.end() || sessions_.contains(by.certificate()) || !it->second->away_since()) return;
    replaced = it->second;
  }
  const std::string why = "another agent of the node has come";
  Lose(replaced, why, {grpc::StatusCode::FAILED_PRECONDITION, why});
}

void AgentHub::OnMessage(AgentStream* stream, const v1::AgentMessage& message) {
  AgentSession* const session = stream->session;
  if (const absl::Status known = CheckSender(*stream, message.header()); !known.ok()) {
    return session == nullptr ? TurnAway(stream, ToGrpc(known)) : Refuse(session, known);
  }
  if (session == nullptr) {
    if (!message.has_hello()) {
      return TurnAway(stream, {grpc::StatusCode::FAILED_PRECONDITION, "an agent says hello first"});
    }
    Greet(stream, message);
    if (stream->session == nullptr) return;
  } else if (message.has_hello()) {
    return Refuse(session, absl::FailedPreconditionError("its agent said hello twice"));
  }
  stream->session->Hear(clock_.Monotonic());
  const bool is_whole = stream->session->Take(message, [&] {
    if (IsCurrent(stream->session)) CarryOut(stream->session, message);
  });
  if (!is_whole) Refuse(stream->session, absl::FailedPreconditionError("its agent left out a message"));
}

void AgentHub::CarryOut(AgentSession* session, const v1::AgentMessage& message) {
  const std::string& node = session->node();
  switch (message.body_case()) {
    case v1::AgentMessage::kReady: {
      absl::StatusOr<rendezvous::NodeOffer> offer = FromWire(message.ready(), node, absl::Now());
      if (!offer.ok()) return Refuse(session, offer.status());
      if (offer->slots.size() != static_cast<size_t>(options_.setup.num_workers)) {
        return Refuse(session, UsageError(absl::StrCat("it offers ", offer->slots.size(), " workers, not ",
                                                       options_.setup.num_workers)));
      }
      return News(node, *std::move(offer));
    }
    case v1::AgentMessage::kNotReady:
      return Refuse(session, absl::FailedPreconditionError(WireText(message.not_ready().why())));
    case v1::AgentMessage::kWorker:
      if (!absl::StartsWith(message.worker().member(), launcher::MemberPrefix(node))) {
        return Refuse(session, absl::PermissionDeniedError("its agent spoke for a worker of another node"));
      }
      if (const absl::Status known = CheckHeader(message.worker().header(), launch_); !known.ok()) {
        return Refuse(session, known);
      }
      return handler_->OnWorkerMessage(session, message.worker());
    case v1::AgentMessage::kReport: {
      absl::StatusOr<rendezvous::NodeEvent> event =
          FromWire(message.report(), node, options_.setup.num_workers);
      if (!event.ok()) return Refuse(session, event.status());
      return News(node, *std::move(event));
    }
    case v1::AgentMessage::kLines:
      for (const v1::WorkerLines::Line& line : message.lines().lines()) {
        News(node, rendezvous::NodeNews::Line{line.rank(), WireText(line.text())});
      }
      if (message.lines().num_dropped() > 0) {
        News(node, rendezvous::NodeNews::Dropped{message.lines().num_dropped()});
      }
      return;
    case v1::AgentMessage::kStop:
      return handler_->OnStop(absl::StrCat(node, ": ", WireText(message.stop().reason())));
    case v1::AgentMessage::kStore:
      return handler_->OnStore(
          {session, message.store().id()}, message.store().request(),
          [session, id = message.store().id()](const grpc::Status& status, v1::StoreReply reply) {
            v1::AgentOrder order;
            v1::StoreAnswer& answer = *order.mutable_store();
            answer.set_id(id);
            answer.mutable_status()->set_code(status.error_code());
            answer.mutable_status()->set_message(status.error_message());
            *answer.mutable_reply() = std::move(reply);
            session->Send(std::move(order));
          });
    case v1::AgentMessage::kStoreCancel:
      return handler_->OnStoreCancel({session, message.store_cancel()});
    case v1::AgentMessage::kLeaving:
      session->is_leaving = true;
      return;
    default:
      return;  // a beat, or what only newer agents know
  }
}

void AgentHub::OnClosed(AgentStream* stream) {
  AgentSession* const session = stream->session;
  if (session == nullptr || !session->Detach(stream, clock_.Monotonic())) return;
  if (session->is_leaving) return Lose(session, "its agent has ended", grpc::Status::OK);
  std::string command_end;
  {
    std::lock_guard lock(mutex_);
    if (const auto it = command_ends_.find(stream->node()); it != command_ends_.end())
      command_end = it->second;
  }
  if (!command_end.empty()) Lose(session, command_end, grpc::Status::OK);
}

}  // namespace trainctl::rpc
