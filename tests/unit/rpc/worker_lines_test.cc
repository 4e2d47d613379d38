#include "rpc/worker_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trainctl::rpc {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

WorkerStatus Worker(int rank, int workers_per_node) {
  WorkerStatus worker;
  worker.node = absl::StrCat("n", rank / workers_per_node);
  worker.rank = rank;
  worker.pid = 100 + rank;
  worker.step = 41;
  worker.phase = "step";
  worker.state = "running";
  worker.silent = absl::Milliseconds(300);
  worker.peak_bytes = int64_t{1} << 30;
  return worker;
}

std::vector<WorkerStatus> Workers(int count, int workers_per_node) {
  std::vector<WorkerStatus> workers;
  for (int rank = 0; rank < count; ++rank) workers.push_back(Worker(rank, workers_per_node));
  return workers;
}

TEST(WorkerLinesTest, AFewWorkersHaveALineEach) {
  std::vector<WorkerStatus> workers = Workers(2, 1);
  workers[1].peak_bytes.reset();
  workers[1].step = -1;
  workers[1].state = "joined";
  EXPECT_THAT(WorkerLines(workers, /*has_nodes=*/true),
              ElementsAre("rank 0      on n0: running, step 41, step, 1.00 GiB, process 100, heard 0.3 s ago",
                          "rank 1      on n1: joined, process 101, heard 0.3 s ago"));
  EXPECT_THAT(WorkerLines(workers, /*has_nodes=*/false),
              ElementsAre("rank 0      running, step 41, step, 1.00 GiB, process 100",
                          "rank 1      joined, process 101"));
}

TEST(WorkerLinesTest, OfManyEachNodeHasALineThatNamesWhoeverIsNotLikeTheOthers) {
  std::vector<WorkerStatus> workers = Workers(24, 8);
  workers[11].step = 40;
  workers[13].state = "exited";
  workers[14].peak_bytes = int64_t{3} << 30;
  workers[15].silent = absl::Seconds(75);
  EXPECT_THAT(
      WorkerLines(workers, /*has_nodes=*/true),
      ElementsAre("n0          8 running, step 41, at most 1.00 GiB (rank 0), heard 0.3 s ago (rank 0)",
                  "n1          1 exited (rank 13), 7 running, step 40 (rank 11) to 41, at most 3.00 GiB "
                  "(rank 14), heard 1 min 15 s ago (rank 15)",
                  "n2          8 running, step 41, at most 1.00 GiB (rank 16), heard 0.3 s ago (rank 16)"));
}

TEST(WorkerLinesTest, TenThousandRanksAreOneLine) {
  std::vector<WorkerStatus> workers = Workers(10'000, 8);
  workers[7'777].step = 7;
  const std::vector<std::string> lines = WorkerLines(workers, /*has_nodes=*/true);
  ASSERT_THAT(lines, SizeIs(1));
  EXPECT_EQ(lines[0],
            "1250 nodes  10000 running, step 7 (rank 7777) to 41, at most 1.00 GiB (rank 0), heard 0.3 s "
            "ago (rank 0)");
}

TEST(WorkerLinesTest, NoWorkersAreNoLines) { EXPECT_THAT(WorkerLines({}, true), SizeIs(0)); }

}  // namespace
}  // namespace trainctl::rpc
