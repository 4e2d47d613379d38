// The service and its clients over a real socket, in one process.
#include <gmock/gmock.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/secret_file.h"
#include "proto/trainctl.grpc.pb.h"
#include "rpc/admin_client.h"
#include "rpc/header.h"
#include "rpc/server.h"
#include "rpc/token.h"
#include "rpc/worker_client.h"

namespace trainctl::rpc {
namespace {

using rendezvous::Notice;
using testing::HasSubstr;

std::vector<uint8_t> Bytes(absl::string_view text) { return {text.begin(), text.end()}; }

class RpcTest : public testing::Test {
 protected:
  RpcTest() {
    std::string folder = "/tmp/trainctl-rpc-test-XXXXXX";
    EXPECT_NE(::mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    options_.socket_path = folder_ + "/s";
    options_.token_path = folder_ + "/token";
    options_.job = "job-1";
    options_.term = 3;
    options_.timeouts = rendezvous::Timeouts::FromDetect(absl::Seconds(30));
  }
  ~RpcTest() override {
    clients_.clear();
    service_.reset();
    (void)RemoveAll(folder_);
  }

  void StartService() {
    auto service = StartServer(options_);
    ASSERT_TRUE(service.ok()) << service.status();
    service_ = *std::move(service);
  }
  static std::string Name(int i) { return launcher::MemberName(launcher::kLocalNode, i); }
  void Expect(int num_workers) {
    rendezvous::Expect expect;
    for (int i = 0; i < num_workers; ++i) {
      expect.slots.push_back({Name(i), launcher::kLocalNode, i, 2, {i}});
    }
    service_->Submit(expect);
  }
  std::unique_ptr<WorkerClient> Connect(int i) { return ConnectWith(TokenOf(i), i); }
  // The file with what worker `i` has to show.
  std::string TokenOf(int i) { return *service_->AdmitWorker({Name(i), launcher::kLocalNode, i, 2, {i}}); }
  std::unique_ptr<WorkerClient> ConnectWith(const std::string& token_file, int i) {
    launcher::WorkerFlags flags{folder_, options_.socket_path, token_file, i};
    flags.incarnation = ++num_started_;
    auto client = WorkerClient::Connect({flags, [this](const std::string& reason) {
                                           std::lock_guard lock(mutex_);
                                           lost_ = reason;
                                           ++num_lost_;
                                           lost_changed_.notify_all();
                                         }});
    EXPECT_TRUE(client.ok()) << client.status();
    return *std::move(client);
  }
  void Start(int num_workers) {
    StartService();
    Expect(num_workers);
    for (int i = 0; i < num_workers; ++i) clients_.push_back(Connect(i));
    Record();
    for (auto& client : clients_) ASSERT_TRUE(client->Join().ok());
  }
  // As the launcher does when everybody has acknowledged. Returns the generation.
  int64_t Record() {
    const int64_t generation = AwaitNotice(Notice::Kind::kPrepared).generation;
    service_->Submit(rendezvous::Recorded{generation});
    return generation;
  }
  // Blocks until a notice of that kind has come.
  Notice AwaitNotice(Notice::Kind kind) {
    while (true) {
      for (const Notice& notice : service_->TakeNotices()) {
        if (notice.kind == kind) return notice;
      }
      pollfd fd = {service_->notice_fd(), POLLIN, 0};
      ::poll(&fd, 1, -1);
    }
  }
  Directive AwaitDirective(int i) {
    while (true) {
      const Directive directive = clients_[i]->control().Poll();
      if (directive.kind != DirectiveKind::kNone) return directive;
      std::this_thread::yield();
    }
  }
  KeyValueStore& store(int i) { return clients_[i]->store(); }

  std::string folder_;
  rendezvous::ServiceOptions options_;
  std::unique_ptr<rendezvous::RendezvousService> service_;
  std::mutex mutex_;
  std::condition_variable lost_changed_;
  std::string lost_;
  int num_lost_ = 0;
  int64_t num_started_ = 0;
  std::vector<std::unique_ptr<WorkerClient>> clients_;
};

TEST_F(RpcTest, WorkersAreGivenTheirWorld) {
  options_.last_generation = 4;
  StartService();
  Expect(3);
  for (int i = 0; i < 3; ++i) clients_.push_back(Connect(i));
  EXPECT_EQ(Record(), 5);
  for (int i = 0; i < 3; ++i) {
    const auto world = clients_[i]->Join();
    ASSERT_TRUE(world.ok()) << world.status();
    EXPECT_EQ(world->rank, i);
    EXPECT_EQ(world->local_rank, i);
    EXPECT_EQ(world->world_size, 3);
    EXPECT_EQ(world->generation, 5);
    EXPECT_EQ(world->threads, 2);
    EXPECT_EQ(world->cores, std::vector<int>{i});
  }
}

TEST_F(RpcTest, NobodyJoinsBeforeTheGenerationIsRecorded) {
  StartService();
  Expect(1);
  clients_.push_back(Connect(0));
  const int64_t generation = AwaitNotice(Notice::Kind::kPrepared).generation;
  EXPECT_EQ(clients_[0]->Join(absl::Milliseconds(50)).status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(GetJobStatus({options_.socket_path, options_.token_path})->phase, "recording");
  service_->Submit(rendezvous::Recorded{generation});
  EXPECT_TRUE(clients_[0]->Join().ok());
}

TEST_F(RpcTest, JoinWithoutTheOthersTimesOut) {
  StartService();
  Expect(2);
  clients_.push_back(Connect(0));
  EXPECT_EQ(clients_[0]->Join(absl::Milliseconds(50)).status().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(RpcTest, TheStoreDoesWhatKeyValueStoreSays) {
  Start(2);
  EXPECT_TRUE(store(0).Set("a", Bytes("one")).ok());
  EXPECT_EQ(*store(1).Get("a", absl::Seconds(10)), Bytes("one"));
  EXPECT_TRUE(store(0).Set("empty", {}).ok());
  EXPECT_EQ(*store(1).Get("empty", absl::Seconds(10)), Bytes(""));
  EXPECT_EQ(*store(1).CompareSet("a", Bytes("two"), Bytes("three")), Bytes("one"));
  EXPECT_EQ(*store(1).CompareSet("a", Bytes("one"), Bytes("three")), Bytes("three"));
  EXPECT_EQ(*store(0).CompareSet("new", {}, Bytes("first")), Bytes("first"));
  EXPECT_EQ(*store(0).Add("n", 5), 5);
  EXPECT_EQ(*store(1).Add("n", -2), 3);
  EXPECT_TRUE(*store(0).Check({"a", "n"}));
  EXPECT_FALSE(*store(0).Check({"a", "missing"}));
  EXPECT_EQ(*store(0).NumKeys(), 4);
  EXPECT_TRUE(*store(0).Delete("a"));
  EXPECT_FALSE(*store(1).Delete("a"));
  const std::string binary("k\0\xff", 3);
  EXPECT_TRUE(store(0).Set(binary, Bytes("x")).ok());
  EXPECT_TRUE(*store(1).Check({binary}));
  EXPECT_EQ(store(0).Add("new", 1).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(RpcTest, AWaitThatIsNotMetNamesItsKey) {
  Start(1);
  const absl::Status status = store(0).Get("missing/key", absl::Milliseconds(30)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("missing/key"));
}

TEST_F(RpcTest, ManyWaitersBlockNobodyAndAllWakeUp) {
  Start(2);
  constexpr int kNumWaiters = 64;  // more than any pool of server threads here
  std::vector<std::future<absl::Status>> waiters;
  for (int i = 0; i < kNumWaiters; ++i) {
    waiters.push_back(std::async(std::launch::async, [this, i] {
      return store(0).Wait({"go", absl::StrCat("own/", i)}, absl::Minutes(1));
    }));
  }
  for (int i = 0; i < kNumWaiters; ++i) ASSERT_TRUE(store(1).Set(absl::StrCat("own/", i), {}).ok());
  ASSERT_TRUE(store(1).Set("go", {}).ok());
  for (auto& waiter : waiters) EXPECT_TRUE(waiter.get().ok());
}

TEST_F(RpcTest, CountingIsAtomic) {
  Start(2);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([this, i] {
      for (int n = 0; n < 50; ++n) ASSERT_TRUE(store(i % 2).Add("count", 1).ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(*store(0).Add("count", 0), 200);
}

TEST_F(RpcTest, AFailureEndsTheWaitsOfTheOthers) {
  Start(2);
  auto waiting =
      std::async(std::launch::async, [this] { return store(0).Wait({"never"}, absl::Minutes(5)); });
  clients_[1]->control().Fail({-1, 17, "dp_shard", "loss is not a number", false, 7});
  const absl::Status status = waiting.get();
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1 failed: loss is not a number"));
  const Notice notice = AwaitNotice(Notice::Kind::kFailed);
  EXPECT_EQ(notice.failure.rank, 1);
  EXPECT_EQ(notice.failure.step, 17);
  EXPECT_EQ(notice.failure.axis, "dp_shard");
  EXPECT_EQ(notice.failure.exit_code, 7);
  EXPECT_EQ(AwaitDirective(0).kind, DirectiveKind::kAbort);
}

TEST_F(RpcTest, AnOlderGenerationIsFencedOffTheStore) {
  Start(1);
  ASSERT_TRUE(store(0).Set("key", Bytes("old")).ok());
  Expect(1);
  std::unique_ptr<WorkerClient> next = Connect(0);
  Record();
  ASSERT_TRUE(next->Join().ok());
  EXPECT_EQ(*next->store().NumKeys(), 0) << "each generation begins with an empty store";
  const absl::Status status = store(0).Set("key", Bytes("stale"));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("generation 1 is superseded by 2"));
}

TEST_F(RpcTest, ProgressArrives) {
  Start(1);
  clients_[0]->control().Report({12, "forward"});
  const Notice notice = AwaitNotice(Notice::Kind::kProgress);
  EXPECT_EQ(notice.rank, 0);
  EXPECT_EQ(notice.progress.step, 12);
  EXPECT_EQ(notice.progress.phase, "forward");
}

TEST_F(RpcTest, DirectivesArrive) {
  Start(2);
  EXPECT_EQ(clients_[0]->control().Poll().kind, DirectiveKind::kNone);
  ASSERT_TRUE(StopJob({options_.socket_path, options_.token_path}, false, "somebody").ok());
  EXPECT_EQ(AwaitNotice(Notice::Kind::kStopRequested).reason, "somebody");
  EXPECT_EQ(AwaitDirective(0).kind, DirectiveKind::kStopAfterSave);
  EXPECT_EQ(clients_[0]->control().Poll().kind, DirectiveKind::kStopAfterSave) << "it stays";
}

TEST_F(RpcTest, SavesAreCountedOnRankZero) {
  Start(2);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(SaveJob({options_.socket_path, options_.token_path}).ok());
  while (clients_[0]->control().Poll().saves_asked < 2) std::this_thread::yield();
  EXPECT_EQ(clients_[0]->control().Poll().kind, DirectiveKind::kNone);
  ASSERT_TRUE(StopJob({options_.socket_path, options_.token_path}, false, "somebody").ok());
  EXPECT_EQ(AwaitDirective(1).kind, DirectiveKind::kStopAfterSave);
  EXPECT_EQ(clients_[1]->control().Poll().saves_asked, 0);
  EXPECT_EQ(AwaitDirective(0).saves_asked, 2) << "a stop takes them not away";
}

TEST_F(RpcTest, ASaveIsRefusedWhileNobodyTrains) {
  StartService();
  Expect(1);
  const absl::Status status = SaveJob({options_.socket_path, options_.token_path});
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("do not train now (gathering)"));
}

TEST_F(RpcTest, LeavingAndEndingIsNoFailure) {
  Start(2);
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(clients_[i]->Leave(LeaveReason::kFinished).ok());
    service_->Submit(rendezvous::Exited{Name(i), true, false, "exited with code 0"});
  }
  AwaitNotice(Notice::Kind::kFinished);
  clients_.clear();
  EXPECT_EQ(num_lost_, 0);
}

TEST_F(RpcTest, ALostCoordinatorIsNoticedOnce) {
  Start(2);
  service_.reset();
  std::unique_lock lock(mutex_);
  lost_changed_.wait(lock, [&] { return num_lost_ == 2; });
  EXPECT_EQ(lost_, "the launcher is gone");
}

TEST_F(RpcTest, NothingWorksWithoutTheToken) {
  Start(1);
  const std::string wrong = folder_ + "/wrong";
  ASSERT_TRUE(WritePass(wrong, {*MakeToken(), {options_.job, options_.term}}).ok());
  EXPECT_EQ(GetJobStatus({options_.socket_path, wrong}).status().code(), absl::StatusCode::kUnauthenticated);
  EXPECT_EQ(StopJob({options_.socket_path, wrong}, true, "intruder").code(),
            absl::StatusCode::kUnauthenticated);
  auto intruder =
      WorkerClient::Connect({{folder_, options_.socket_path, wrong, 0}, [](const std::string& reason) {}});
  ASSERT_TRUE(intruder.ok());
  EXPECT_FALSE((*intruder)->Join().ok());
  EXPECT_EQ((*intruder)->store().Set("k", {}).code(), absl::StatusCode::kUnauthenticated);
  const auto status = GetJobStatus({options_.socket_path, options_.token_path});
  ASSERT_TRUE(status.ok());
  EXPECT_EQ(status->stop, "");
  EXPECT_EQ(status->workers[0].state, "running") << "the job has not noticed";
}

// Its token is good, what it says is of another launch.
TEST_F(RpcTest, AWorkerOfAnotherJobOrTermIsRefusedByWhatItSays) {
  Start(1);
  const std::string file = folder_ + "/other";
  for (const Launch& other :
       {Launch{"job-2", options_.term}, Launch{options_.job, 2}, Launch{options_.job, 4}}) {
    ASSERT_TRUE(WritePass(file, {ReadPass(TokenOf(0))->token, other}).ok());
    const auto stranger = ConnectWith(file, 0);
    const absl::Status joined = stranger->Join(absl::Seconds(10)).status();
    EXPECT_THAT(std::string(joined.message()), HasSubstr("this is job-1, term 3"));
    const absl::Status set = stranger->store().Set("key", Bytes("stale"));
    EXPECT_EQ(set.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(set.message()), HasSubstr("this is job-1, term 3"));
  }
  const auto status = GetJobStatus({options_.socket_path, options_.token_path});
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(status->workers[0].state, "running") << "nobody is in its place";
  ASSERT_TRUE(store(0).Set("key", Bytes("new")).ok());
}

// Prepares whoever comes, with this header.
class OddLauncher : public v1::Trainctl::Service {
 public:
  OddLauncher(const std::string& socket_path, v1::Header header) : header_(std::move(header)) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + socket_path, grpc::InsecureServerCredentials());
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  grpc::Status Session(grpc::ServerContext*,
                       grpc::ServerReaderWriter<v1::CoordinatorMessage, v1::WorkerMessage>* stream) override {
    v1::WorkerMessage heard;
    (void)stream->Read(&heard);
    v1::CoordinatorMessage order;
    *order.mutable_header() = header_;
    order.mutable_prepare();
    stream->Write(order);
    while (stream->Read(&heard)) continue;
    return grpc::Status::OK;
  }

 private:
  const v1::Header header_;
  std::unique_ptr<grpc::Server> server_;
};

TEST_F(RpcTest, AWorkerDoesNotObeyAnotherLaunchOrWhatIsForAnotherProcess) {
  const std::string file = folder_ + "/token-0";
  const Launch own{options_.job, options_.term};
  ASSERT_TRUE(WritePass(file, {*MakeToken(), own}).ok());
  for (const auto& [launch, incarnation, words] : {std::tuple{Launch{"job-2", 3}, 1, "job 'job-2'"},
                                                   {Launch{"job-1", 2}, 2, "term 2"},
                                                   {own, 4, "for incarnation 4"}}) {
    const OddLauncher launcher(options_.socket_path, MakeHeader(launch, 1, incarnation));
    const auto worker = ConnectWith(file, 0);  // of incarnations 1, 2 and 3
    EXPECT_THAT(std::string(worker->Join(absl::Seconds(30)).status().message()), HasSubstr(words));
  }
}

TEST_F(RpcTest, TheTokenAndTheSocketArePrivate) {
  StartService();
  struct stat info;
  ASSERT_EQ(::stat(options_.token_path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  ASSERT_EQ(::stat(options_.socket_path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  ASSERT_EQ(::chmod(options_.token_path.c_str(), 0644), 0);
  EXPECT_THAT(std::string(ReadPass(options_.token_path).status().message()),
              HasSubstr("can be read by others"));
  const std::string of_worker = TokenOf(0);
  EXPECT_EQ(TokenOf(0), of_worker) << "once for all attempts";
  ASSERT_EQ(::stat(of_worker.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  const std::string token = ReadPass(of_worker)->token;
  EXPECT_NE(token, ReadPass(TokenOf(1))->token);
  ASSERT_EQ(::unlink(of_worker.c_str()), 0);  // as whoever cleans up /tmp does
  EXPECT_EQ(ReadPass(TokenOf(0))->token, token);
  service_.reset();
  EXPECT_FALSE(PathExists(of_worker)) << "it is of no use any more";
}

TEST_F(RpcTest, TheSocketIsPrivateWhateverTheUmask) {
  for (const mode_t mask : {0000, 0777}) {
    const mode_t before = ::umask(mask);
    StartService();
    ::umask(before);
    struct stat info;
    ASSERT_EQ(::stat(options_.socket_path.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600u);
    service_.reset();
  }
}

TEST_F(RpcTest, AFileThatIsNoSocketIsNotReplaced) {
  ASSERT_TRUE(WriteFileAtomic(options_.socket_path, "mine").ok());
  EXPECT_FALSE(StartServer(options_).ok());
  EXPECT_TRUE(PathExists(options_.socket_path));
}

// Whoever is let through by the modes of files is not let in for it.
TEST_F(RpcTest, ProcessesOfOtherUsersAreTurnedAwayAndToldOfOnce) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  Start(1);
  ASSERT_EQ(::chmod(options_.socket_path.c_str(), 0666), 0);
  ASSERT_EQ(::chmod(folder_.c_str(), 0755), 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  options_.socket_path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      constexpr uid_t kNobody = 65534;
      const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
      char byte = 0;
      if (::setuid(kNobody) != 0 ||
          ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
        ::_exit(1);
      }
      ::_exit(::recv(fd, &byte, 1, 0) <= 0 ? 0 : 2);  // the server's settings, if it is let in
    }
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << WEXITSTATUS(status);
  }
  EXPECT_TRUE(store(0).Set("still", Bytes("here")).ok());
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1) << log;
  EXPECT_THAT(log, HasSubstr("from user 65534 was refused"));
}

TEST_F(RpcTest, AWorkerIsRefusedAsAdminAndToldOfOnce) {
  Start(2);
  const std::string token = TokenOf(0);
  testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(GetJobStatus({options_.socket_path, token}).status().code(),
              absl::StatusCode::kPermissionDenied);
    EXPECT_EQ(SaveJob({options_.socket_path, token}).code(), absl::StatusCode::kPermissionDenied);
    const absl::Status stop = StopJob({options_.socket_path, token}, true, "a worker");
    EXPECT_EQ(stop.code(), absl::StatusCode::kPermissionDenied);
    EXPECT_THAT(std::string(stop.message()), HasSubstr("the role worker may not stop the run"));
  }
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1) << log;
  EXPECT_THAT(log, HasSubstr("a call of local/0 was refused"));
  const auto status = GetJobStatus({options_.socket_path, options_.token_path});
  EXPECT_EQ(status->stop, "");
  EXPECT_EQ(status->workers[0].state, "running");
}

TEST_F(RpcTest, AWorkerSpeaksForNoOtherMember) {
  Start(2);
  testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) {
    const auto impostor = ConnectWith(TokenOf(0), 1);
    EXPECT_EQ(impostor->Join(absl::Seconds(10)).status().code(), absl::StatusCode::kUnavailable);
    impostor->control().Fail({-1, 1, "", "not mine to say", false});
  }
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1) << log;
  EXPECT_THAT(log, HasSubstr("worker local/0 spoke as 'local/1'"));
  clients_[1]->control().Report({7, "forward"});
  const Notice notice = AwaitNotice(Notice::Kind::kProgress);
  EXPECT_EQ(notice.rank, 1) << "nobody is in its place";
  const auto status = GetJobStatus({options_.socket_path, options_.token_path});
  ASSERT_TRUE(status.ok()) << status.status();
  for (const auto& worker : status->workers) {
    EXPECT_EQ(worker.state, "running");
  }
}

TEST_F(RpcTest, AnAdminTakesNoPartInTheTraining) {
  Start(1);
  const auto admin = ConnectWith(options_.token_path, 0);
  EXPECT_EQ(admin->Join(absl::Seconds(10)).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(admin->store().Set("k", {}).code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(GetJobStatus({options_.socket_path, options_.token_path})->workers[0].state, "running");
}

TEST_F(RpcTest, AStaleSocketIsReplaced) {
  ASSERT_TRUE(WriteFileAtomic(options_.token_path, "old").ok());
  StartService();
  service_.reset();
  EXPECT_FALSE(PathExists(options_.socket_path));
  StartService();
  EXPECT_TRUE(GetJobStatus({options_.socket_path, options_.token_path}).ok());
}

TEST_F(RpcTest, OversizedMessagesAreRefusedAndNothingElseSuffers) {
  Start(1);
  EXPECT_FALSE(store(0).Set("huge", std::vector<uint8_t>(64 << 20)).ok());
  EXPECT_FALSE(store(0).Set(std::string(10'000, 'k'), Bytes("x")).ok());
  EXPECT_TRUE(store(0).Set("ok", std::vector<uint8_t>(1 << 20)).ok());
  EXPECT_EQ(store(0).Get("ok", absl::Seconds(10))->size(), 1u << 20);
}

TEST_F(RpcTest, WordsThatAreNotUtf8StillArrive) {
  Start(1);
  clients_[0]->control().Fail({-1, 1, "", "broken \xff\x01 name", false});
  EXPECT_EQ(AwaitNotice(Notice::Kind::kFailed).failure.message, "broken \xEF\xBF\xBD\xEF\xBF\xBD name");
}

TEST(TokenTest, TokensDifferAndCompare) {
  const std::string a = *MakeToken();
  EXPECT_EQ(a.size(), 64u);
  EXPECT_NE(a, *MakeToken());
  EXPECT_TRUE(SameToken(a, a));
  EXPECT_FALSE(SameToken(a, a.substr(1)));
  EXPECT_FALSE(SameToken(a, ""));
}

}  // namespace
}  // namespace trainctl::rpc
