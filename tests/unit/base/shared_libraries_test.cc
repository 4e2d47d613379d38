#include "base/shared_libraries.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/status.h"

namespace trainctl {
namespace {

using testing::ElementsAre;
using testing::Field;

TEST(SharedLibraries, AreThoseThatTheLoaderNamesWithAPath) {
  const auto libraries = ParseSharedLibraries(
      "\tlinux-vdso.so.1 (0x00007fff)\n"
      "\tlibtorch_cpu.so => /opt/my torch/lib/libtorch_cpu.so (0x00007f01)\n"
      "\tlibgone.so => not found\n"
      "\t/lib64/ld-linux-x86-64.so.2 => /lib64/ld-linux-x86-64.so.2 (0x00007f02)\n");
  ASSERT_EQ(libraries.size(), 2u);
  EXPECT_EQ(libraries[0].name, "libtorch_cpu.so");
  EXPECT_EQ(libraries[0].path, "/opt/my torch/lib/libtorch_cpu.so");
}

TEST(SharedLibraries, OfThisProgramAreFoundWithoutRunningIt) {
  const auto libraries = FindSharedLibraries(std::filesystem::read_symlink("/proc/self/exe").string());
  ASSERT_TRUE(libraries.ok()) << libraries.status();
  EXPECT_THAT(*libraries, testing::Contains(Field(&SharedLibrary::name, "libc.so.6")));
  EXPECT_EQ(ExitCodeFor(FindSharedLibraries("/dev/null").status()), ExitCode::kEnvironment);
}

}  // namespace
}  // namespace trainctl
