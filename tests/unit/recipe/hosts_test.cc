#include "recipe/hosts.h"

#include "recipe_test_util.h"

namespace trainctl::recipe {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string FileError(const std::string& text) {
  const absl::StatusOr<std::vector<std::string>> hosts = ParseHostsFile(text, "hosts");
  if (hosts.ok()) return "OK";
  EXPECT_EQ(ExitCodeFor(hosts.status()), ExitCode::kUsage) << hosts.status();
  return std::string(hosts.status().message());
}

TEST(HostsFile, HasAMachineOnEachLine) {
  const absl::StatusOr<std::vector<std::string>> hosts = ParseHostsFile(
      "# the rack\n\nnode-1.example\r\n\t me@node_2  # spare disk\nfe80::1%eth0\n10.0.0.7", "hosts");
  ASSERT_TRUE(hosts.ok()) << hosts.status();
  EXPECT_THAT(*hosts, ElementsAre("node-1.example", "me@node_2", "fe80::1%eth0", "10.0.0.7"));
}

TEST(HostsFile, SaysWhichLineIsNoMachine) {
  EXPECT_EQ(FileError("n0\nn1 slots=8\n"),
            "hosts:2: unexpected 'slots=8' after the name 'n1'; put one name on each line. Set the number of "
            "workers per machine with cluster.devices_per_node");
  EXPECT_THAT(FileError("n0\n\nn1:8\n"),
              HasSubstr("hosts:3: 'n1:8' is not a valid machine name: set a port"));
  EXPECT_THAT(FileError("n0\nn1\nN0\n"), HasSubstr("hosts: N0 is listed twice (as n0)"));
  EXPECT_EQ(FileError("# nobody\n"), "hosts lists no machines; add one per line");
  EXPECT_EQ(FileError(""), "hosts lists no machines; add one per line");
  EXPECT_THAT(FileError(std::string("n0\0n1", 5)), HasSubstr("'n0\\x00n1' is not a valid machine name"));
}

// What ssh, or a ProxyCommand's shell behind it, could take for more than a name.
TEST(Hosts, AreNamesAndNothingElse) {
  for (const char* host :
       {"-v", "-", "me@-v", "-l@n0", "@n0", "me@", "n0;reboot", "$(reboot)", "n0 n1", "n0\n", "n[1-4]",
        "ssh://n0", "n0/1", "`id`@n0", "me me@n0", "n\xc3\xa9", "[::1]", ""}) {
    const absl::Status status = CheckHosts({host}, "launch.ssh.hosts");
    EXPECT_THAT(std::string(status.message()), HasSubstr("is not a valid machine name")) << host;
  }
  EXPECT_FALSE(CheckHosts({std::string(254, 'n')}, "x").ok());
  for (const char* host : {"n0", "n-0.example.org", "me@n0", "me@example.org@n0", "::1", "fe80::1%eth0"}) {
    EXPECT_TRUE(CheckHosts({host}, "x").ok()) << CheckHosts({host}, "x");
  }
}

TEST(SshOptions, AreWhatSshTakesBeforeAName) {
  for (const std::vector<std::string>& options :
       std::vector<std::vector<std::string>>{{},
                                             {"-F", "config"},
                                             {"-p2222"},
                                             {"-vp", "2222", "-4"},
                                             {"-o", "User=me", "-oPort=2222"},
                                             {"-i", "-odd"}}) {
    EXPECT_TRUE(CheckSshOptions(options).ok()) << CheckSshOptions(options);
  }
  const auto error = [](const std::vector<std::string>& options) {
    return std::string(CheckSshOptions(options).message());
  };
  EXPECT_THAT(error({"n1"}), HasSubstr("'n1' would be treated as the machine's name"));
  EXPECT_THAT(error({"-p2222", "n1"}), HasSubstr("'n1' would be treated as"));
  EXPECT_THAT(error({"-"}), HasSubstr("would be treated as"));
  EXPECT_THAT(error({"-v", "-p"}), HasSubstr("'-p' is not followed by a value"));
  EXPECT_THAT(error({"--"}), HasSubstr("ends the options"));
  for (const char* option : {"-N", "-f", "-tt", "-vn", "-W"}) {
    EXPECT_THAT(error({option}), HasSubstr("cannot be used with")) << option;
  }
}

constexpr char kSsh[] = R"([cluster]
nodes = 2
[launch]
backend = "ssh"
[launch.ssh]
)";

TEST(ReadHosts, TakesTheListOrTheFileBesideTheRecipe) {
  FakeWorld world;
  world.files["/cwd/recipes/hosts"] = "n2\nn3\nn4\n";
  const auto read = [&](const std::string& line) -> absl::StatusOr<std::vector<std::string>> {
    const std::string text = absl::StrCat(kMinimal, kSsh, line);
    TRAINCTL_ASSIGN_OR_RETURN(const LoadedRecipe loaded,
                              LoadRecipeText(text, "recipes/r.toml", {}, world.access()));
    return ReadHosts(loaded.recipe, world.access());
  };
  EXPECT_THAT(*read("hosts = ['n0', 'n1']\n"), ElementsAre("n0", "n1"));
  EXPECT_THAT(*read("hosts_file = 'hosts'\n"), ElementsAre("n2", "n3", "n4")) << "spare machines too";
  world.files["/cwd/recipes/hosts"] = "n2\n";
  EXPECT_EQ(std::string(read("hosts_file = 'hosts'\n").status().message()),
            "recipes/r.toml:16:1: /cwd/recipes/hosts has 1 machine, but cluster.nodes = 2; list 1 more, or "
            "set cluster.nodes = 1");
  world.files["/cwd/recipes/hosts"] = "n2\n-v\n";
  EXPECT_THAT(std::string(read("hosts_file = 'hosts'\n").status().message()),
              HasSubstr("/cwd/recipes/hosts:2: '-v' is not a valid machine name"));
}

// The file is the machines of the day: it may have changed since the recipe was stored.
TEST(ReadHosts, ReadsTheFileAnew) {
  FakeWorld world;
  world.files["/cwd/hosts"] = "n0\nn1\n";
  const auto loaded = world.Load(absl::StrCat(kMinimal, kSsh, "hosts_file = 'hosts'\n"));
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  world.files["/cwd/hosts"] = "n0\nn7\n";
  EXPECT_THAT(*ReadHosts(loaded->recipe, world.access()), ElementsAre("n0", "n7"));
  world.files["/cwd/hosts"] = "n0\n";
  EXPECT_FALSE(ReadHosts(loaded->recipe, world.access()).ok());
  world.files.clear();
  EXPECT_THAT(std::string(ReadHosts(loaded->recipe, world.access()).status().message()),
              HasSubstr("launch.ssh.hosts_file: cannot open /cwd/hosts"));
}

// A plan is for machines that may not be there yet.
TEST(ReadHosts, APlanGoesWithoutAndSaysWhatALaunchNeeds) {
  FakeWorld world;
  for (const char* line : {"", "hosts = ['n0']\n", "hosts_file = 'not-there'\n"}) {
    const auto plan =
        LoadRecipeText(absl::StrCat(kMinimal, kSsh, line), "r.toml", {}, world.access(), Purpose::kPlan);
    ASSERT_TRUE(plan.ok()) << plan.status();
    ASSERT_EQ(plan->missing.size(), 1) << line;
    EXPECT_EQ(ErrorOf(absl::StrCat(kMinimal, kSsh, line)), plan->missing[0]);
  }
}

TEST(ReadHosts, ALaterLayerReplacesTheListByAFile) {
  FakeWorld world;
  world.files["/cwd/hosts"] = "n2\nn3\n";
  const auto loaded =
      world.Load(absl::StrCat(kMinimal, kSsh, "hosts = ['n0', 'n1']\n"), {"launch.ssh.hosts_file=hosts"});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_THAT(*ReadHosts(loaded->recipe, world.access()), ElementsAre("n2", "n3"));
  EXPECT_TRUE(world
                  .Load(absl::StrCat(kMinimal, kSsh, "hosts = ['n0', 'n1']\n"),
                        {"launch.ssh=default", "launch.backend=local", "cluster.nodes=1"})
                  .ok());
}

}  // namespace
}  // namespace trainctl::recipe
