#include "run/event_text.h"

#include <gtest/gtest.h>

namespace trainctl::run {
namespace {

TEST(EventText, SaysWhereALaunchRuns) {
  EXPECT_EQ(EventText({.kind = EventKind::kLaunch, .world_size = 1, .pid = 12, .host = "here"}),
            "launched: 1 worker; process 12 on here");
  EXPECT_EQ(
      EventText({.kind = EventKind::kLaunch, .world_size = 4, .pid = 12, .host = "a", .nodes = {"a", "b"}}),
      "launched: 4 workers on a, b; process 12 on a");
  EXPECT_EQ(EventText({.kind = EventKind::kLaunch, .world_size = 2, .pid = 12}),
            "launched: 2 workers; process 12")
      << "of an older build";
}

TEST(EventText, NamesTheRankAndTheStepOfAFailure) {
  EXPECT_EQ(
      EventText({.kind = EventKind::kWorkerExit, .step = 58, .rank = 2, .message = "killed by SIGKILL"}),
      "rank 2 failed in step 58: killed by SIGKILL");
  EXPECT_EQ(
      EventText({.kind = EventKind::kWorkerExit, .step = 58, .rank = 9, .host = "b", .message = "killed"}),
      "rank 9 on b failed in step 58: killed");
  EXPECT_EQ(EventText({.kind = EventKind::kWorkerExit, .rank = 0, .message = "exit code 5"}),
            "rank 0 failed during start-up: exit code 5");
  EXPECT_EQ(EventText({.kind = EventKind::kWorkerExit, .message = "node2: its agent has ended"}),
            "failed: node2: its agent has ended");
}

TEST(EventText, TellsTheRestOfALife) {
  EXPECT_EQ(EventText({.kind = EventKind::kGeneration, .generation = 3, .world_size = 4}),
            "generation 3: 4 workers");
  EXPECT_EQ(EventText({.kind = EventKind::kCheckpoint, .step = 50}), "checkpoint at step 50");
  EXPECT_EQ(EventText({.kind = EventKind::kStop, .message = "save and stop: SIGTERM"}),
            "asked to save and stop: SIGTERM");
  EXPECT_EQ(EventText({.kind = EventKind::kRestart, .message = "restarting all workers (1 of 3)"}),
            "restarting all workers (1 of 3)");
  EXPECT_EQ(EventText({.kind = EventKind::kChange, .step = 20, .message = "train.steps: 40 -> 80"}),
            "changed after step 20: train.steps: 40 -> 80");
  EXPECT_EQ(EventText({.kind = EventKind::kFromScratch}), "restarts at step 1");
  EXPECT_EQ(EventText({.kind = EventKind::kEnd, .status = RunStatus::kFinished}), "finished");
  EXPECT_EQ(EventText({.kind = EventKind::kEnd, .status = RunStatus::kStopped, .message = "SIGTERM"}),
            "stopped: SIGTERM");
  EXPECT_EQ(EventText({.kind = EventKind::kEnd,
                       .status = RunStatus::kStopped,
                       .message = "stopped before the first checkpoint"}),
            "stopped before the first checkpoint");
}

}  // namespace
}  // namespace trainctl::run
