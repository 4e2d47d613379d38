// A job at work while others do what they should not at the agents' port and at the agents' sockets.
#include <arpa/inet.h>
#include <fcntl.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <random>
#include <thread>

#include "absl/cleanup/cleanup.h"
#include "agents_fixture.h"
#include "base/clock.h"
#include "base/network.h"
#include "base/secret_file.h"
#include "rpc/channel.h"
#include "rpc/job_secret.h"
#include "rpc/token.h"

namespace trainctl::rpc {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

// A connection to the agents' port without any of TLS; -1 when there is none to be had. `source`: 127.x.y.z.
int ConnectRaw(const std::string& endpoint, const std::string& source = "127.0.0.1") {
  const Endpoint to = *ParseEndpoint(endpoint);
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  ::inet_pton(AF_INET, source.c_str(), &address.sin_addr);
  const int own = ::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address));
  ::inet_pton(AF_INET, to.host.c_str(), &address.sin_addr);
  address.sin_port = htons(static_cast<uint16_t>(to.port));
  if (own == 0 && ::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) return fd;
  ::close(fd);
  return -1;
}

// Until the other end closes.
void AwaitEnd(int fd) {
  char bytes[4096];
  while (::recv(fd, bytes, sizeof(bytes), 0) > 0) continue;
}

// Sends these bytes as a message to a method, "/trainctl.v1.Agents/Enroll"; `token`: empty: none.
grpc::Status SendBytes(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                       const grpc::ByteBuffer& bytes, const std::string& token = "") {
  grpc::GenericStub stub(channel);
  grpc::CompletionQueue queue;
  grpc::ClientContext context;
  context.set_deadline(Soon());
  if (!token.empty()) context.AddMetadata(kTokenKey, token);
  const auto call = stub.PrepareUnaryCall(&context, method, bytes, &queue);
  call->StartCall();
  grpc::ByteBuffer reply;
  grpc::Status status;
  call->Finish(&reply, &status, &reply);
  void* tag = nullptr;
  bool ok = false;
  EXPECT_TRUE(queue.Next(&tag, &ok));
  return status;
}

// All of its pieces are one, so that it takes 1 MiB here.
grpc::ByteBuffer Megabytes(size_t count) {
  const std::vector<grpc::Slice> pieces(count, grpc::Slice(std::string(size_t{1} << 20, 'x')));
  return {pieces.data(), pieces.size()};
}

// The wall clock of somebody who is so far ahead.
class ShiftedClock : public Clock {
 public:
  explicit ShiftedClock(absl::Duration ahead) : ahead_(ahead) {}
  absl::Time Now() const override { return absl::Now() + ahead_; }
  absl::Duration Monotonic() const override { return absl::ZeroDuration(); }

 private:
  const absl::Duration ahead_;
};

size_t NumLines(const std::string& text) {
  return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
}

// The nodes' agents: n0 is honest and its two workers set and get keys all the time; n1 is the attackers'.
// The job's authority is there before, so that it signs what the launcher would not.
class AttackTest : public AgentsTest {
 protected:
  AttackTest() {
    options_.network->secret_path = folder_ + "/secret";
    EXPECT_TRUE(WriteSecretFile(options_.network->secret_path, FormatJobSecret(secret_)).ok());
    StartJob({"n0"});
    // Taken here: nodes that come later move the list of them.
    KeyValueStore& first = store(0, 0);
    KeyValueStore& second = store(0, 1);
    working_ = std::thread([this, &first, &second] {
      for (int64_t i = 0; !is_over_; ++i) {
        const std::string key = absl::StrCat("key/", i);
        if (!first.Set(key, Bytes(key)).ok() || *second.Get(key, absl::Minutes(2)) != Bytes(key) ||
            !*first.Delete(key)) {
          ++num_errors_;
        }
        num_done_ = i + 1;
      }
    });
  }
  ~AttackTest() override {
    if (working_.joinable()) EndWork();
  }
  void EndWork() {
    ExpectUnaffected();
    is_over_ = true;
    working_.join();
    EXPECT_EQ(num_errors_, 0);
    for (const rendezvous::Notice& notice : service_->TakeNotices()) {
      EXPECT_NE(notice.kind, rendezvous::Notice::Kind::kFailed) << notice.failure.message;
      EXPECT_NE(notice.kind, rendezvous::Notice::Kind::kStopRequested) << notice.reason;
    }
    for (const News& news : service_->TakeNodeNews()) news_.push_back(news);
    for (const News& news : news_)
      EXPECT_NE(news.node, "n0") << "the honest one is there, and was told nothing";
  }
  // Its workers get on with what they do.
  void ExpectUnaffected() {
    for (const int64_t before = num_done_; num_done_ < before + 10;) std::this_thread::yield();
  }
  // A call with this certificate does not even get a connection, however often, and the log tells once.
  void ExpectNoConnection(
      const Credential& theirs,
      const std::string& why = "its certificate belongs to another job or is outside its validity period") {
    const std::string to = endpoint();
    testing::internal::CaptureStderr();
    for (int i = 0; i < 5; ++i) {
      const auto channel = *MakeTlsChannel(
          to, grpc::SslCredentials({secret_.authority.ca_pem, theirs.key_pem, theirs.cert_pem}));
      grpc::ClientContext context;
      context.set_deadline(Soon());
      v1::EnrollReply reply;
      EXPECT_EQ(v1::Agents::NewStub(channel)->Enroll(&context, {}, &reply).error_code(),
                grpc::StatusCode::UNAVAILABLE);
    }
    ExpectUnaffected();
    const std::string log = testing::internal::GetCapturedStderr();
    EXPECT_EQ(NumLines(log), 1u) << log;
    EXPECT_THAT(log, HasSubstr(why));
  }
  // By this job's authority, as if it were so much later.
  Credential IssuedAfter(absl::Duration time) {
    const ShiftedClock then(time);
    return *(*JobAuthority::Open("job-1", secret_, then))->Issue({Role::kAgent, "n1"});
  }
  std::string endpoint() { return ReadInvitation(Invite("n1"))->endpoints[0]; }
  // Joins as n1, says this, and is expected to be refused for it.
  void ExpectRefused(const v1::AgentMessage& message, grpc::StatusCode code, const std::string& why) {
    RawAgent agent(Invite("n1"));
    agent.Join();
    agent.Say(message);
    const grpc::Status status = agent.Wait();
    EXPECT_EQ(status.error_code(), code) << message.DebugString();
    EXPECT_THAT(status.error_message(), HasSubstr(why));
    EXPECT_THAT(AwaitNews<News::Gone>("n1").why, HasSubstr(why));
    ExpectUnaffected();
  }
  void ExpectRefused(const v1::NodeReport& report) {
    v1::AgentMessage message;
    *message.mutable_report() = report;
    ExpectRefused(message, grpc::StatusCode::INVALID_ARGUMENT,
                  "a report of n1 names a worker that the node does not have");
  }

  const JobSecret secret_ = *MakeJobSecret("llm", RealClock());

 private:
  std::atomic<bool> is_over_{false};
  std::atomic<int64_t> num_done_{0};
  std::atomic<int64_t> num_errors_{0};
  std::thread working_;
};

TEST_F(AttackTest, WithoutACertificateThereIsNoConnection) {
  ExpectNoConnection({}, "it presented no certificate");
}

TEST_F(AttackTest, WithTheBootstrapCertificateNothingIsAllowedButToEnroll) {
  RawAgent nobody(Invite("n1"), /*has_certificate=*/false);
  testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) {
    nobody.Open();
    nobody.SayHello();
    EXPECT_EQ(nobody.Wait().error_code(), grpc::StatusCode::UNAUTHENTICATED);
  }
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(NumLines(log), 1u) << log;
  EXPECT_THAT(log, HasSubstr("its caller is no agent of this job"));
}

TEST_F(AttackTest, TokensServeOneNodeAndOneKey) {
  RawAgent agent(Invite("n1"));
  const Invitation& mine = agent.invitation();
  const std::string other = MakeKeyAndRequest()->csr_pem;
  v1::EnrollReply reply;
  const auto is_denied = [&](const std::string& node, const std::string& token) {
    return agent.Enroll(node, token, other, &reply).error_code() == grpc::StatusCode::PERMISSION_DENIED;
  };
  EXPECT_TRUE(is_denied("n1", mine.token)) << "used, with another key";
  EXPECT_TRUE(is_denied("n0", mine.token));
  EXPECT_TRUE(is_denied("n1", *MakeToken()));
  EXPECT_TRUE(is_denied("n1", ""));
  EXPECT_TRUE(is_denied("n2", mine.token));
  EXPECT_TRUE(is_denied(std::string(1 << 20, 'n'), mine.token));
  const std::string next = ReadInvitation(Invite("n1"))->token;
  EXPECT_TRUE(is_denied("n1", mine.token)) << "it was replaced";
  EXPECT_EQ(agent.Enroll("n1", next, "no request", &reply).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_TRUE(agent.Enroll("n1", next, other, &reply).ok());
}

TEST_F(AttackTest, WhoGuessesTokensLearnsNothingAndFillsNoLog) {
  RawAgent agent(Invite("n1"));
  const auto credentials = *MakeClientCredentials(agent.invitation().bootstrap);
  const auto stub = v1::Agents::NewStub(*MakeTlsChannel(agent.invitation().endpoints[0], credentials));
  testing::internal::CaptureStderr();
  std::string of_known, of_unknown;
  for (int i = 0; i < 2000; ++i) {
    grpc::ClientContext context;
    context.set_deadline(Soon());
    v1::EnrollRequest request;
    request.set_node(i % 2 == 0 ? "n1" : "n2");  // n2 has no token at all
    request.set_token(*MakeToken());
    v1::EnrollReply reply;
    const grpc::Status status = stub->Enroll(&context, request, &reply);
    ASSERT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED);
    (i % 2 == 0 ? of_known : of_unknown) = status.error_message();
  }
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(NumLines(log), 1u) << log;
  EXPECT_THAT(log, HasSubstr("an agent was refused: the token is not that of node"));
  std::replace(of_unknown.begin(), of_unknown.end(), '2', '1');
  EXPECT_EQ(of_known, of_unknown);
}

TEST_F(AttackTest, CertificatesOfOtherJobsAreRefusedAndToldOfOnce) {
  const RealClock clock;
  ExpectNoConnection(*(*JobAuthority::Create("job-1", clock))->Issue({Role::kAgent, "n1"}));
}

TEST_F(AttackTest, ACertificateThatHasExpiredIsRefusedAndToldOfOnce) {
  ExpectNoConnection(IssuedAfter(-kCertificateLifetime - absl::Hours(1)));
}

TEST_F(AttackTest, ACertificateOfTheFutureIsRefusedAndToldOfOnce) {
  ExpectNoConnection(IssuedAfter(kCertificateBackdate + absl::Hours(1)));
}

TEST_F(AttackTest, AnAgentSpeaksForItsOwnWorkersOnly) {
  v1::AgentMessage message;
  message.mutable_worker()->mutable_header()->set_generation(1);
  message.mutable_worker()->mutable_failure()->set_message("not from here");
  for (const std::string member : {"n0/0", "n0", "", "n10/0", "/0"}) {
    message.mutable_worker()->set_member(member);
    ExpectRefused(message, grpc::StatusCode::PERMISSION_DENIED, "spoke for a worker of another node");
  }
}

TEST_F(AttackTest, WorkersThatANodeDoesNotHaveAreNotReported) {
  for (const int worker : {-1, 2, 1 << 30, INT32_MIN, INT32_MAX}) {
    v1::NodeReport report;
    report.mutable_ended()->set_worker(worker);
    ExpectRefused(report);
    report.mutable_boards()->add_boards()->set_worker(worker);
    ExpectRefused(report);
    report.mutable_activity()->set_worker(worker);
    ExpectRefused(report);
  }
}

TEST_F(AttackTest, ANodeOffersTheWorkersThatTheJobNeeds) {
  v1::AgentMessage message;
  message.mutable_ready();
  ExpectRefused(message, grpc::StatusCode::INVALID_ARGUMENT, "it offers 0 workers, not 2");
  for (int i = 0; i < 3; ++i) {
    v1::SlotMessage& slot = *message.mutable_ready()->add_slots();
    slot.set_member(launcher::MemberName("n1", i));
    slot.set_worker_id(i);
    slot.set_threads(1);
  }
  ExpectRefused(message, grpc::StatusCode::INVALID_ARGUMENT, "it offers 3 workers, not 2");
  message.mutable_ready()->mutable_slots()->RemoveLast();
  message.mutable_ready()->mutable_slots(0)->set_member("n0/0");
  ExpectRefused(message, grpc::StatusCode::INVALID_ARGUMENT, "is not one of its workers");
}

TEST_F(AttackTest, HelloComesFirstAndOnce) {
  {
    RawAgent agent(Invite("n1"));
    agent.Open();
    v1::AgentMessage stop;
    stop.mutable_stop()->set_reason("before hello");
    agent.Say(stop);
    const grpc::Status status = agent.Wait();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
    EXPECT_EQ(status.error_message(), "an agent says hello first");
  }
  RawAgent agent(Invite("n1"));
  agent.Join();
  agent.SayHello();
  EXPECT_EQ(agent.Wait().error_message(), "its agent said hello twice");
  EXPECT_EQ(AwaitNews<News::Gone>("n1").why, "its agent said hello twice");
}

TEST_F(AttackTest, AnAgentOfAnotherJobOrOfTheFutureIsToldSo) {
  RawAgent agent(Invite("n1"));
  v1::AgentMessage hello;
  hello.set_protocol_version(kProtocolVersion + 1);
  hello.mutable_hello();
  testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) {
    agent.Open();
    agent.Say(hello);
    EXPECT_THAT(agent.Wait().error_message(), HasSubstr("this launcher up to 1"));
  }
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(NumLines(log), 1u) << log;
  EXPECT_THAT(log, HasSubstr("the agent of n1 was refused: the agent speaks protocol 2"));
}

TEST_F(AttackTest, AMessageOfAGigabyteIsRefusedAndSoAreOthersBeyondTheLimit) {
  RawAgent agent(Invite("n1"));
  grpc::ChannelArguments arguments;
  arguments.SetMaxSendMessageSize(-1);
  const auto local = [&](const std::string& socket) {
    return grpc::CreateCustomChannel("unix:" + socket, grpc::InsecureChannelCredentials(), arguments);
  };
  const auto of_launcher = local(options_.socket_path);
  const auto of_node = local(nodes_[0]->socket());
  const std::string admin = ReadPass(options_.token_path)->token;
  const std::string worker = ReadPass(nodes_[0]->token(0))->token;
  arguments.SetSslTargetNameOverride(kCoordinatorName);
  const auto port = grpc::CreateCustomChannel(
      agent.invitation().endpoints[0], *MakeClientCredentials(agent.invitation().bootstrap), arguments);
  // The connection is ended if the message takes longer than a newcomer has.
  EXPECT_THAT(SendBytes(port, "/trainctl.v1.Agents/Enroll", Megabytes(1024)).error_code(),
              AnyOf(grpc::StatusCode::RESOURCE_EXHAUSTED, grpc::StatusCode::UNAVAILABLE));
  ExpectUnaffected();
  for (const grpc::Status& status :
       {SendBytes(of_launcher, "/trainctl.v1.Trainctl/Stop", Megabytes(64), admin),
        SendBytes(of_node, "/trainctl.v1.Trainctl/Store", Megabytes(64), worker)}) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
    ExpectUnaffected();
  }
  // As a part of a stream.
  EXPECT_FALSE(SendBytes(port, "/trainctl.v1.Agents/Node", Megabytes(64)).ok());
  EXPECT_FALSE(SendBytes(of_node, "/trainctl.v1.Trainctl/Session", Megabytes(64), worker).ok());
  ExpectUnaffected();
}

TEST_F(AttackTest, GarbageIsDroppedAndToldOfOnce) {
  std::mt19937 random(1);
  testing::internal::CaptureStderr();
  for (int i = 0; i < 50; ++i) {
    const int fd = ConnectRaw(endpoint());
    ASSERT_GE(fd, 0);
    // Some begin as TLS does.
    std::string bytes = i % 3 == 0   ? std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11)
                        : i % 3 == 1 ? "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
                                     : "GET / HTTP/1.1\r\n\r\n";
    for (int n = 0; n < 2000; ++n) bytes.push_back(static_cast<char>(random()));
    (void)::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    AwaitEnd(fd);
    ::close(fd);
  }
  ExpectUnaffected();
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(NumLines(log), 1u) << log;
  EXPECT_THAT(log, HasSubstr("its TLS handshake failed"));
}

TEST_F(AttackTest, SlowOnesHoldNobodyUpNorTheEnd) {
  const std::string to = endpoint();
  std::vector<int> fds;
  for (int i = 0; i < 200; ++i) fds.push_back(ConnectRaw(to));
  const std::string begin("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11);
  for (const char byte : begin) {
    for (const int fd : fds) (void)::send(fd, &byte, 1, MSG_NOSIGNAL);
    ExpectUnaffected();
  }
  RawAgent agent(Invite("n1"));
  agent.Join();
  (void)agent.Finish();
  EndWork();
  service_ = nullptr;  // is expected to return
  for (const int fd : fds) {
    AwaitEnd(fd);
    ::close(fd);
  }
}

// RLIMIT_NOFILE of the process that is attacked, and of the attackers, which are in it.
class FewFiles {
 protected:
  static constexpr rlim_t kMost = 4096;
  FewFiles() {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    rlimit files = before_;
    files.rlim_cur = std::min(files.rlim_cur, kMost);
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &files), 0);
  }
  ~FewFiles() { (void)::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_;
};
class FewFilesTest : protected FewFiles, public AttackTest {};

TEST_F(FewFilesTest, ManyConnectionsLeaveTheLauncherItsFiles) {
  const std::string to = endpoint();
  std::vector<int> fds;
  const auto close_all = [&] {
    for (const int fd : fds) ::close(fd);
    fds.clear();
  };
  testing::internal::CaptureStderr();
  // From many addresses, for one alone does not get far. Each takes a file here and one there.
  for (size_t i = 0; i < kMost / 2; ++i) {
    const int fd = ConnectRaw(to, absl::StrCat("127.0.", 1 + i / 500, ".1"));
    if (fd < 0) break;
    fds.push_back(fd);
  }
  AwaitEnd(fds.front());  // there were too many
  ExpectUnaffected();
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(NumLines(log), 1u) << log;
  EXPECT_THAT(log, HasSubstr("too many connections to the agents' port"));
  std::vector<int> files;
  for (int i = 0; i < 100; ++i) files.push_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  EXPECT_GE(files.back(), 0) << "none was left for the launcher";
  for (const int file : files) ::close(file);
  close_all();
  // And it still accepts.
  RawAgent agent(Invite("n1"));
  agent.Join();
}

TEST_F(FewFilesTest, TenThousandConnectionsLeaveTheJobAlone) {
  const std::string to = endpoint();
  std::deque<int> fds;
  testing::internal::CaptureStderr();
  for (size_t i = 0; i < 10'000; ++i) {
    if (fds.size() == kMost / 2) {
      ::close(fds.front());
      fds.pop_front();
    }
    // The launcher shares its files with the attackers here.
    const int fd = ConnectRaw(to, absl::StrCat("127.", 1 + i / 500, ".0.1"));
    if (fd >= 0) fds.push_back(fd);
    if (i % 1000 == 0) ExpectUnaffected();
  }
  ExpectUnaffected();
  for (const int fd : fds) ::close(fd);
  RawAgent agent(Invite("n1"));
  agent.Join();
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(NumLines(log), 1u) << log;
  EXPECT_THAT(log, HasSubstr("too many connections to the agents' port"));
}

// Of its own user's processes: workers that are out of hand.
TEST_F(AttackTest, ManyConnectionsToANodesSocketLeaveItsWorkersAlone) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  nodes_[0]->socket().copy(address.sun_path, sizeof(address.sun_path) - 1);
  std::vector<int> fds;
  const absl::Cleanup close_all = [&] {
    for (const int fd : fds) ::close(fd);
  };
  testing::internal::CaptureStderr();
  for (int i = 0; i < 800; ++i) {
    fds.push_back(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::connect(fds.back(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  }
  AwaitEnd(fds.back());  // it was too many
  ExpectUnaffected();
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(NumLines(log), 1u) << log;
  EXPECT_THAT(log, HasSubstr("too many connections to the control socket"));
}

TEST_F(AttackTest, OneAddressCannotKeepOthersOut) {
  const std::string to = endpoint();
  std::vector<int> fds;
  const absl::Cleanup close_all = [&] {
    for (const int fd : fds) ::close(fd);
  };
  testing::internal::CaptureStderr();
  for (int i = 0; i < 800; ++i) fds.push_back(ConnectRaw(to, "127.0.0.9"));
  AwaitEnd(fds.front());
  RawAgent agent(Invite("n1"));
  agent.Join();
  (void)agent.Finish();
  ExpectUnaffected();
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(NumLines(log), 1u) << log;
  EXPECT_THAT(log, HasSubstr("one from 127.0.0.9 was ended"));
}

TEST_F(AttackTest, EachServiceIsServedInItsPlaceOnly) {
  RawAgent agent(Invite("n1"));
  const auto trainctl = v1::Trainctl::NewStub(agent.channel());
  const auto agents = v1::Agents::NewStub(MakeChannel(options_.socket_path));
  const auto agents_of_node = v1::Agents::NewStub(MakeChannel(nodes_[0]->socket()));
  const auto trainctl_of_node = v1::Trainctl::NewStub(MakeChannel(nodes_[0]->socket()));
  const auto code = [](const std::string& token, auto call) {
    grpc::ClientContext context;
    context.set_deadline(Soon());
    context.AddMetadata(kTokenKey, token);
    return call(&context).error_code();
  };
  const std::string token = ReadPass(options_.token_path)->token;
  const std::string node_token = ReadPass(nodes_[0]->token(0))->token;
  for (const std::string& each : {token, node_token}) {
    EXPECT_EQ(code(each,
                   [&](auto* context) {
                     v1::StopReply reply;
                     return trainctl->Stop(context, {}, &reply);
                   }),
              grpc::StatusCode::UNIMPLEMENTED);
    for (auto* stub : {agents.get(), agents_of_node.get()}) {
      EXPECT_EQ(code(each,
                     [&](auto* context) {
                       v1::EnrollReply reply;
                       return stub->Enroll(context, {}, &reply);
                     }),
                grpc::StatusCode::UNIMPLEMENTED);
    }
    EXPECT_EQ(code(each,
                   [&](auto* context) {
                     v1::StopReply reply;
                     return trainctl_of_node->Stop(context, {}, &reply);
                   }),
              grpc::StatusCode::UNIMPLEMENTED)
        << "an agent stops nothing";
  }
  EXPECT_EQ(code(token,
                 [&](auto* context) {
                   v1::StoreReply reply;
                   return trainctl_of_node->Store(context, {}, &reply);
                 }),
            grpc::StatusCode::UNAUTHENTICATED)
      << "each socket has its own token";
  grpc::ClientContext context;
  context.set_deadline(Soon());
  const auto session = trainctl_of_node->Session(&context);
  EXPECT_EQ(session->Finish().error_code(), grpc::StatusCode::UNAUTHENTICATED);
}

TEST_F(AttackTest, AWorkerSpeaksForNoOtherMemberOfItsNodeOrAnother) {
  TestNode& node = AddNode("n1");
  node.Await<rendezvous::NodeSetup>();
  const auto stub = v1::Trainctl::NewStub(MakeChannel(node.socket()));
  testing::internal::CaptureStderr();
  for (const std::string member : {"n1/1", "n0/0", "n1", ""}) {
    grpc::ClientContext context;
    context.set_deadline(Soon());
    context.AddMetadata(kTokenKey, ReadPass(node.token(0))->token);
    const auto session = stub->Session(&context);
    v1::WorkerMessage message;
    message.set_member(member);
    message.mutable_header()->set_generation(1);
    message.mutable_failure()->set_message("not from here");
    ASSERT_TRUE(session->Write(message));
    EXPECT_EQ(session->Finish().error_code(), grpc::StatusCode::PERMISSION_DENIED);
  }
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(NumLines(log), 1u) << log;
  EXPECT_THAT(log, HasSubstr("worker n1/0 spoke as 'n1/1'"));
  node.link().TellReady({node.Slots()});
  AwaitNews<rendezvous::NodeOffer>("n1");
}

}  // namespace
}  // namespace trainctl::rpc
