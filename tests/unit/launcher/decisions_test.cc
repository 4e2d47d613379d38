// The launcher's pure parts: cores, the worker's command line.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "base/status.h"
#include "launcher/agent_starter.h"
#include "launcher/cpu_layout.h"
#include "launcher/progress_board.h"
#include "launcher/worker_contract.h"

namespace trainctl::launcher {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(CpuLayoutTest, WorkersGetDisjointNeighbours) {
  const auto shares = DivideCores({0, 1, 2, 3, 8, 9, 10, 11}, 2, std::nullopt);
  EXPECT_EQ(shares[0].threads, 4);
  EXPECT_THAT(shares[0].cores, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(shares[1].cores, ElementsAre(8, 9, 10, 11));
}

TEST(CpuLayoutTest, LeftOverCoresStayFree) {
  const auto shares = DivideCores({0, 1, 2, 3, 4, 5, 6}, 3, std::nullopt);
  EXPECT_THAT(shares[2].cores, ElementsAre(4, 5));
}

TEST(CpuLayoutTest, MoreWorkersThanCoresShareThem) {
  const auto shares = DivideCores({4, 7}, 3, std::nullopt);
  EXPECT_EQ(shares[0].threads, 1);
  EXPECT_THAT(shares[0].cores, ElementsAre(4));
  EXPECT_THAT(shares[1].cores, ElementsAre(7));
  EXPECT_THAT(shares[2].cores, ElementsAre(4));
}

TEST(CpuLayoutTest, ThreadsAsAskedOnAtMostAllCores) {
  EXPECT_THAT(DivideCores({0, 1, 2, 3}, 2, 1)[1].cores, ElementsAre(1));
  const auto shares = DivideCores({0, 1}, 2, 8);
  EXPECT_EQ(shares[1].threads, 8);
  EXPECT_THAT(shares[1].cores, ElementsAre(0, 1));
}

TEST(WorkerContractTest, FlagsSurviveTheTripAndOthersStay) {
  std::vector<std::string> args = FormatWorkerFlags({"/runs/a b", "/tmp/s", "/tmp/t", 3, 17});
  args.insert(args.begin(), "--generate");
  args.push_back("prompt");
  const auto flags = ParseWorkerFlags(args);
  ASSERT_TRUE(flags.ok()) << flags.status();
  EXPECT_EQ(flags->run_dir, "/runs/a b");
  EXPECT_EQ(flags->socket, "/tmp/s");
  EXPECT_EQ(flags->token_file, "/tmp/t");
  EXPECT_EQ(flags->worker_id, 3);
  EXPECT_EQ(flags->progress_fd, 17);
  EXPECT_THAT(args, ElementsAre("--generate", "prompt"));
}

TEST(WorkerContractTest, BadFlagsAreUsageErrors) {
  const std::vector<std::string> good = FormatWorkerFlags({"/r", "/s", "/t", 0});
  std::vector<std::vector<std::string>> bad = {{}, {good.begin(), good.end() - 1}, good, good, good};
  bad[2].back() = "-1";
  bad[3].back() = "x";
  bad[4].insert(bad[4].end(), {"--socket", "/again"});
  for (std::vector<std::string>& args : bad) {
    EXPECT_EQ(ExitCodeFor(ParseWorkerFlags(args).status()), ExitCode::kUsage);
  }
}

TEST(ProgressBoardTest, BothSidesSeeTheSame) {
  auto board = ProgressBoard::Create();
  ASSERT_TRUE(board.ok()) << board.status();
  EXPECT_EQ(board->Read().step, -1);
  auto other = ProgressBoard::Open(::dup(board->fd()));
  ASSERT_TRUE(other.ok()) << other.status();
  other->Write({42, "a phase whose name is longer than the board has room for it"});
  EXPECT_EQ(board->Read().step, 42);
  EXPECT_EQ(board->Read().phase, "a phase whose name is longer than the board has");
  other->Write({43, "save"});
  EXPECT_EQ(board->Read().phase, "save");
  const int not_a_board = ::open("/dev/null", O_RDWR);
  EXPECT_FALSE(ProgressBoard::Open(not_a_board).ok());
  ::close(not_a_board);
}

// Of an option that is given twice ssh takes the first.
TEST(SshCommand, WhatTheRecipeSaysComesBeforeWhatIsTakenOtherwise) {
  const std::vector<std::string> command =
      SshCommand({"-o", "ConnectTimeout=5", "-p", "2222"}, "me@node1", "/opt/train ctl");
  const std::string line = absl::StrJoin(command, " ");
  EXPECT_LT(line.find("ConnectTimeout=5"), line.find("ConnectTimeout=20"));
  EXPECT_LT(line.find("BatchMode=yes"), line.find("ConnectTimeout=5")) << "nobody can type a password";
  EXPECT_THAT(line, testing::EndsWith("-- me@node1 exec '/opt/train ctl' agent"));
}

}  // namespace
}  // namespace trainctl::launcher
