// Status and stop from other machines: who may, over real sockets.
#include <gmock/gmock.h>
#include <grpcpp/client_context.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <atomic>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/status.h"
#include "proto/trainctl.grpc.pb.h"
#include "rpc/admin_client.h"
#include "rpc/admin_service.h"
#include "rpc/invitation.h"
#include "rpc/server.h"
#include "rpc/tls.h"
#include "rpc/wire.h"
#include "rpc/worker_stream.h"

namespace trainctl::rpc {
namespace {

using testing::HasSubstr;

constexpr char kJob[] = "job-1";

class AdminTest : public testing::Test {
 protected:
  AdminTest() {
    std::string folder = "/tmp/trainctl-admin-test-XXXXXX";
    EXPECT_NE(::mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    path_ = folder_ + "/admin.json";
  }
  ~AdminTest() override {
    service_.reset();
    (void)RemoveAll(folder_);
  }

  void StartService() {
    rendezvous::ServiceOptions options;
    options.socket_path = folder_ + "/s";
    options.token_path = folder_ + "/token";
    options.timeouts = rendezvous::Timeouts::FromDetect(absl::Seconds(30));
    options.job = kJob;
    options.network = {.nodes = {"node1", "node2"}, .addresses = {"127.0.0.1"}};
    options.network->setup.run_dir = folder_;
    auto service = StartServer(options);
    ASSERT_TRUE(service.ok()) << service.status();
    service_ = *std::move(service);
    rendezvous::Expect expect;
    expect.slots = {{"node1/0", "node1", 0, 1, {0}}, {"node2/0", "node2", 0, 1, {0}}};
    service_->Submit(expect);
  }

  std::string folder_;
  std::string path_;
  std::unique_ptr<rendezvous::RendezvousService> service_;
};

TEST_F(AdminTest, TheLauncherLeavesAKeyWithWhichOthersAskAndStop) {
  StartService();
  const auto access = ReadAccessFile(folder_, Role::kAdmin);
  ASSERT_TRUE(access.ok()) << access.status();
  const auto status = GetJobStatus(*access);
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(status->phase, "gathering");
  ASSERT_EQ(status->workers.size(), 2u);
  EXPECT_EQ(status->workers[0].node, "node1");
  EXPECT_EQ(status->workers[1].node, "node2");
  ASSERT_TRUE(StopJob(*access, false, "somebody").ok());
  while (GetJobStatus(*access)->stop.empty()) {
  }
  EXPECT_EQ(GetJobStatus(*access)->stop, "after save");
  service_.reset();
  EXPECT_FALSE(PathExists(path_)) << "it is of no use any more";
  EXPECT_EQ(GetJobStatus(*access, absl::Seconds(1)).status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(AdminTest, OnlyWhoLaunchedTheRunCanReadTheKey) {
  StartService();
  struct stat info;
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  ASSERT_EQ(::chmod(path_.c_str(), 0640), 0);
  EXPECT_THAT(std::string(ReadAccessFile(folder_, Role::kAdmin).status().message()),
              HasSubstr("can be read by others"));
  EXPECT_EQ(ExitCodeFor(ReadAccessFile(folder_, Role::kAdmin).status()), ExitCode::kEnvironment);
}

TEST_F(AdminTest, WhoMayReadTheFolderMayLookAndNoMore) {
  const mode_t before = ::umask(022);
  StartService();
  ::umask(before);
  const std::string path = AccessPath(folder_, Role::kReader);
  struct stat info;
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0644u);
  const auto access = ReadAccessFile(folder_, Role::kReader);
  ASSERT_TRUE(access.ok()) << access.status();
  EXPECT_EQ(GetJobStatus(*access)->phase, "gathering");
  EXPECT_EQ(StopJob(*access, true, "").code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(SaveJob(*access).code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(GetJobStatus(*access)->stop, "");
  service_.reset();
  EXPECT_FALSE(PathExists(path)) << "it is of no use any more";
}

TEST_F(AdminTest, ALaunchDoesNotRemoveTheKeyOfTheNextOne) {
  StartService();
  LauncherAccess next = *ReadAccessFile(folder_, Role::kAdmin);
  next.job = "job-2";
  ASSERT_TRUE(WriteAccessFile(folder_, Role::kAdmin, next).ok());
  service_.reset();
  EXPECT_TRUE(PathExists(path_));
}

TEST_F(AdminTest, WhatIsNoAdminFileIsRefusedByName) {
  EXPECT_TRUE(absl::IsNotFound(ReadAccessFile(folder_, Role::kAdmin).status()));
  for (const char* text :
       {"", "{}", R"({"schema":"trainctl.access.v2"})",
        R"({"schema":"trainctl.access.v1","job":"j","key":"","certificate":"","ca":""})"}) {
    ASSERT_TRUE(WriteFileAtomic(path_, text).ok());
    ASSERT_EQ(::chmod(path_.c_str(), 0600), 0);
    const absl::Status refused = ReadAccessFile(folder_, Role::kAdmin).status();
    EXPECT_FALSE(refused.ok()) << text;
    EXPECT_THAT(std::string(refused.message()), HasSubstr(path_)) << text;
  }
}

TEST_F(AdminTest, WorkersCallsAreNotServedToOtherMachines) {
  StartService();
  const LauncherAccess access = *ReadAccessFile(folder_, Role::kAdmin);
  const auto channel = *MakeTlsChannel(access.endpoints[0], *MakeClientCredentials(access.credential));
  v1::StoreRequest request;
  request.set_operation(v1::StoreRequest::NUM_KEYS);
  v1::StoreReply reply;
  {
    grpc::ClientContext context;
    EXPECT_EQ(v1::Trainctl::NewStub(channel)->Store(&context, request, &reply).error_code(),
              grpc::StatusCode::UNIMPLEMENTED);
  }
  grpc::ClientContext context;
  EXPECT_EQ(v1::Agents::NewStub(channel)->Node(&context)->Finish().error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
}

// Whoever may read the folder finds a reader's certificate.
TEST_F(AdminTest, TheAgentsPortTrustsNoCertificateOfTheRunFolder) {
  StartService();
  const Invitation invitation = *ReadInvitation(*service_->Invite("node1"));
  for (const Role role : {Role::kAdmin, Role::kReader}) {
    const Credential found = ReadAccessFile(folder_, role)->credential;
    const auto channel =
        *MakeTlsChannel(invitation.endpoints[0],
                        grpc::SslCredentials({invitation.bootstrap.ca_pem, found.key_pem, found.cert_pem}));
    grpc::ClientContext context;
    v1::EnrollReply reply;
    EXPECT_EQ(v1::Agents::NewStub(channel)->Enroll(&context, {}, &reply).error_code(),
              grpc::StatusCode::UNAVAILABLE);
  }
}

TEST_F(AdminTest, ALargeMessageIsRefusedAndOthersAreAnswered) {
  StartService();
  const LauncherAccess access = *ReadAccessFile(folder_, Role::kReader);
  const auto channel = *MakeTlsChannel(access.endpoints[0], *MakeClientCredentials(access.credential));
  v1::StopRequest request;
  request.set_reason(std::string(8 << 20, 'x'));  // which a client of ours sends
  grpc::ClientContext context;
  v1::StopReply reply;
  EXPECT_EQ(v1::Admin::NewStub(channel)->Stop(&context, request, &reply).error_code(),
            grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(GetJobStatus(access)->phase, "gathering");
}

// Roles: a service of its own, as the launcher's authority cannot be asked for other certificates.
class RoleTest : public testing::Test, private AdminService::Handler {
 protected:
  RoleTest()
      : authority_(*JobAuthority::Create(kJob, clock_)),
        service_(kJob, {"/runs/one", "7:42"}, &refusals_, this) {
    const Credential own = *authority_->Issue({Role::kCoordinator, "launch"});
    int port = 0;
    grpc::ServerBuilder builder;
    SetServerLimits(builder, kMaxMessageBytes);
    builder.AddListeningPort("127.0.0.1:0", *MakeServerCredentials(own), &port);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    access_.endpoints = {absl::StrCat("127.0.0.1:", port)};
  }

  const LauncherAccess& As(const Credential& credential) {
    access_.credential = credential;
    return access_;
  }
  const LauncherAccess& As(Role role) { return As(*authority_->Issue({role, "node1"})); }

  grpc::ServerUnaryReactor* OnAdminStatus(grpc::CallbackServerContext* context, v1::StatusReply*) override {
    return FinishNow(context, grpc::Status::OK);
  }
  grpc::ServerUnaryReactor* OnAdminStop(grpc::CallbackServerContext* context,
                                        const v1::StopRequest& request) override {
    ++num_stops_;
    return FinishNow(context, grpc::Status::OK);
  }

  grpc::ServerUnaryReactor* OnAdminSave(grpc::CallbackServerContext* context) override {
    return FinishNow(context, grpc::Status::OK);
  }

  const RealClock clock_;
  const std::unique_ptr<JobAuthority> authority_;
  RefusalLog refusals_{clock_};
  AdminService service_;
  std::unique_ptr<grpc::Server> server_;
  LauncherAccess access_;
  std::atomic<int> num_stops_{0};
};

TEST_F(RoleTest, AnAdminMayAskAndStop) {
  EXPECT_TRUE(GetJobStatus(As(Role::kAdmin)).ok());
  EXPECT_TRUE(StopJob(As(Role::kAdmin), false, "").ok());
  EXPECT_TRUE(SaveJob(As(Role::kAdmin)).ok());
  EXPECT_EQ(num_stops_, 1);
}

// A copy contains the same certificates. The device number may differ between machines.
TEST_F(RoleTest, FromACopyOfTheRunNobodyMay) {
  LauncherAccess access = As(Role::kAdmin);
  access.folder = "9:42";
  EXPECT_TRUE(GetJobStatus(access).ok());
  access.folder = "7:43";
  EXPECT_EQ(GetJobStatus(access).status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(SaveJob(access).code(), absl::StatusCode::kAborted);
  const absl::Status refused = StopJob(access, false, "");
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("this folder is a copy; the run continues in /runs/one"));
  EXPECT_EQ(num_stops_, 0);
}

TEST_F(RoleTest, AReaderMayOnlyAsk) {
  EXPECT_TRUE(GetJobStatus(As(Role::kReader)).ok());
  const absl::Status refused = StopJob(As(Role::kReader), false, "");
  EXPECT_EQ(SaveJob(As(Role::kReader)).code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("reader may not stop the run"));
  EXPECT_EQ(num_stops_, 0);
}

TEST_F(RoleTest, AnAgentMayNeither) {
  EXPECT_EQ(GetJobStatus(As(Role::kAgent)).status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(StopJob(As(Role::kAgent), false, "").code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(num_stops_, 0);
}

TEST_F(RoleTest, WhoeverHasNoCertificateOfTheJobMayNeither) {
  EXPECT_EQ(GetJobStatus(As(Role::kBootstrap)).status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(StopJob(As(Role::kBootstrap), false, "").code(), absl::StatusCode::kPermissionDenied);
  const auto other = *JobAuthority::Create("job-2", clock_);
  EXPECT_EQ(GetJobStatus(As(*other->Issue({Role::kAdmin, "admin"})), absl::Seconds(1)).status().code(),
            absl::StatusCode::kUnavailable)
      << "another job's authority is not trusted, either way";
  EXPECT_EQ(num_stops_, 0);
}

}  // namespace
}  // namespace trainctl::rpc
