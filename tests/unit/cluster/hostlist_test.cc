#include "cluster/hostlist.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/status.h"

namespace trainctl::cluster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

std::vector<std::string> Expand(absl::string_view list) {
  const absl::StatusOr<std::vector<std::string>> hosts = ExpandHostlist(list);
  EXPECT_TRUE(hosts.ok()) << list << ": " << hosts.status();
  return hosts.ok() ? *hosts : std::vector<std::string>();
}

// What `scontrol show hostnames` of Slurm 22.05 prints for these; tests/slurm asks it where it is installed.
TEST(Hostlist, NamesAsSlurmReadsThem) {
  EXPECT_THAT(Expand("login"), ElementsAre("login"));
  EXPECT_THAT(Expand("n[1-3]"), ElementsAre("n1", "n2", "n3"));
  EXPECT_THAT(Expand("n[08-11]"), ElementsAre("n08", "n09", "n10", "n11"));
  EXPECT_THAT(Expand("n[8-011]"), ElementsAre("n8", "n9", "n10", "n11"));
  EXPECT_THAT(Expand("n[001-002,200],gpu-a"), ElementsAre("n001", "n002", "n200", "gpu-a"));
  EXPECT_THAT(Expand("n[1-2][3-4]"), ElementsAre("n13", "n14", "n23", "n24"));
  EXPECT_THAT(Expand("n[1,1],n1"), ElementsAre("n1", "n1", "n1")) << "names are not made one";
  EXPECT_THAT(Expand("[7-8]"), ElementsAre("7", "8"));
}

TEST(Hostlist, ASuffixBehindBrackets) {
  EXPECT_THAT(Expand("tux[1-2].cluster.example"),
              ElementsAre("tux1.cluster.example", "tux2.cluster.example"));
}

struct BadList {
  const char* list;
  const char* words;
};

class BadHostlist : public ::testing::TestWithParam<BadList> {};

TEST_P(BadHostlist, IsRefusedWithWords) {
  const absl::StatusOr<std::vector<std::string>> hosts = ExpandHostlist(GetParam().list);
  ASSERT_FALSE(hosts.ok()) << GetParam().list;
  EXPECT_TRUE(absl::IsDataLoss(hosts.status())) << hosts.status();
  EXPECT_THAT(std::string(hosts.status().message()), HasSubstr(GetParam().words));
}

INSTANTIATE_TEST_SUITE_P(
    Lists, BadHostlist,
    ::testing::Values(BadList{"", "empty"}, BadList{",", "empty"}, BadList{"a,,b", "empty"},
                      BadList{"a,", "empty"}, BadList{"n[1-2", "never closed"},
                      BadList{"n1-2]", "unexpected ']'"}, BadList{"a[1[2]]", "unexpected '['"},
                      BadList{"n[]", "neither"}, BadList{"n[,1]", "neither"}, BadList{"n[a]", "'a'"},
                      BadList{"n[1-]", "'1-' is not a range"}, BadList{"n[-1]", "neither"},
                      BadList{"n[1--2]", "not a range"}, BadList{"n[3-1]", "'3-1' runs backwards"},
                      BadList{"n[99999999999999999999]", "neither"},
                      BadList{"a b", "not allowed in a host name"}, BadList{"a\x01", "a\\x01"},
                      BadList{"n[0-99999]", "more than 65536"}, BadList{"n[1-300][1-300]", "more than 65536"},
                      BadList{"a[1-40000],b[1-40000]", "more than 65536"}));

TEST(Hostlist, TheMostAndOneMore) {
  EXPECT_THAT(Expand("n[1-65536]"), SizeIs(kMaxHosts));
  EXPECT_FALSE(ExpandHostlist("n[1-65536],m").ok());
  const std::string longest(kMaxHostName, 'a');
  EXPECT_THAT(Expand(longest), ElementsAre(longest));
  EXPECT_FALSE(ExpandHostlist(longest + "a").ok());
}

}  // namespace
}  // namespace trainctl::cluster
