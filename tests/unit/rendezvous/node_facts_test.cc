#include "rendezvous/node_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/status.h"

namespace trainctl::rendezvous {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr int64_t kGiB = int64_t{1} << 30;

NodeFacts Programs(const std::string& programs) { return {.programs = programs}; }

TEST(NodeFactsTest, NodesOfWhichNothingIsKnownWillDo) {
  EXPECT_TRUE(CheckNodes({{"a", {}}, {"b", {}}}, {.memory_bytes = kGiB, .num_devices = 8}).ok());
  EXPECT_TRUE(CheckNodes({}, {}).ok());
}

TEST(NodeFactsTest, TheFewerNodesWithAnotherProgramAreNamed) {
  const absl::Status status =
      CheckNodes({{"a", Programs("1")}, {"b", Programs("2")}, {"c", Programs("2")}, {"d", Programs("")}}, {});
  EXPECT_EQ(ExitCodeFor(status), ExitCode::kEnvironment);
  EXPECT_EQ(
      status.message(),
      "a: its workers' program is another one than the other nodes have (1, not 2); install the same build "
      "on all");
  EXPECT_THAT(std::string(CheckNodes({{"a", Programs("1")}, {"b", Programs("2")}}, {}).message()),
              HasSubstr("b: its workers' program"))
      << "of as many, the first node's are the ones to have";
  EXPECT_TRUE(CheckNodes({{"a", Programs("1")}, {"b", Programs("1")}}, {}).ok());
}

TEST(NodeFactsTest, AnotherTrainctlAndAnotherLibTorchAreNamedToo) {
  const absl::Status status = CheckNodes({{"a", {.trainctl = "1", .libraries = "7"}},
                                          {"b", {.trainctl = "1", .libraries = "8"}},
                                          {"c", {.trainctl = "2", .libraries = "7"}}},
                                         {});
  EXPECT_EQ(ExitCodeFor(status), ExitCode::kEnvironment);
  EXPECT_EQ(
      status.message(),
      "b: its LibTorch is another one than the other nodes have (8, not 7); install the same build on all\n"
      "c: its trainctl is another one than the other nodes have (2, not 1); install the same build on all");
}

TEST(NodeFactsTest, ANodeThatReadsAnotherRecipeIsNamed) {
  const NamedFacts nodes = {{"a", {.run_files = "1"}}, {"b", {.run_files = "2"}}, {"c", {}}};
  EXPECT_THAT(
      std::string(CheckNodes(nodes, {.run_files = "1"}).message()),
      AllOf(HasSubstr("b: it reads another recipe or plan"), Not(HasSubstr("a: ")), Not(HasSubstr("c: "))));
  EXPECT_TRUE(CheckNodes(nodes, {}).ok());
}

TEST(NodeFactsTest, ANodeWhoseDisksAreFullIsNamedWithBothNumbers) {
  const NodeNeeds needs{.run_bytes = 2 * kGiB, .temp_bytes = 4 << 20};
  const absl::Status status = CheckNodes({{"a", {.run_free_bytes = 2 * kGiB, .temp_free_bytes = 4 << 20}},
                                          {"b", {.run_free_bytes = kGiB, .temp_free_bytes = 4 << 20}},
                                          {"c", {.run_free_bytes = 3 * kGiB, .temp_free_bytes = 1 << 20}}},
                                         needs);
  EXPECT_EQ(
      status.message(),
      "b: it may write 1.00 GiB into the run's folder, and a checkpoint takes 2.00 GiB; free some, or put "
      "run.root on another disk\n"
      "c: it may write 1.00 MiB into its folder for temporary files (TMPDIR or /tmp), and needs 4.00 MiB; "
      "free some, or set TMPDIR "
      "there");
}

TEST(NodeFactsTest, EachNodeThatIsShortOfSomethingIsNamedWithWhatItHas) {
  const NodeNeeds needs{.memory_bytes = 4 * kGiB, .num_devices = 8};
  const absl::Status status = CheckNodes({{"a", {.memory_available_bytes = 4 * kGiB, .num_devices = 8}},
                                          {"b", {.memory_available_bytes = 4 * kGiB - 1, .num_devices = 8}},
                                          {"c", {.memory_available_bytes = 5 * kGiB, .num_devices = 7}}},
                                         needs);
  const std::string text(status.message());
  EXPECT_THAT(text,
              HasSubstr("b: 4.00 GiB of memory are free there, and its workers' tensors need 4.00 GiB"));
  EXPECT_THAT(text, HasSubstr("c: its driver shows 7 of 8 devices"));
  EXPECT_THAT(text, Not(HasSubstr("a: ")));
}

TEST(NodeFactsTest, AClockThatIsOffIsTold) {
  EXPECT_THAT(
      NotesOnClocks({{"a", {.clock_ahead = absl::Seconds(2)}}, {"b", {.clock_ahead = -absl::Seconds(2)}}}),
      IsEmpty());
  EXPECT_THAT(
      NotesOnClocks({{"a", {.clock_ahead = absl::Seconds(90)}}, {"b", {.clock_ahead = -absl::Seconds(3)}}}),
      ElementsAre(HasSubstr("the clock of a is 1m30s ahead of the launcher's"),
                  HasSubstr("the clock of b is 3s behind the launcher's")));
}

}  // namespace
}  // namespace trainctl::rendezvous
