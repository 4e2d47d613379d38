// Checks where the plugin looks for Arrow. tests/parquet checks the data that it reads.
#include "data/parquet_plugin.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>

#include "data_test_util.h"

namespace trainctl::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class ParquetPlugin : public DataTest {
 protected:
  void TearDown() override {
    for (const auto& [name, value] : before_) ::setenv(name.c_str(), value.c_str(), 1);
    DataTest::TearDown();
  }
  void Set(const std::string& name, const std::string& value) {
    const char* const before = std::getenv(name.c_str());
    before_.emplace(name, before == nullptr ? "" : before);
    ::setenv(name.c_str(), value.c_str(), 1);
  }
  std::string MakeFolder(const std::string& name) const {
    std::filesystem::create_directories(Path(name));
    return Path(name);
  }

 private:
  std::map<std::string, std::string> before_;
};

TEST_F(ParquetPlugin, ThePythonEnvironmentsOfTheUserAreKnown) {
  Set("VIRTUAL_ENV", "");
  Set("PATH", absl::StrCat("/nowhere:", MakeFolder("empty/bin"), ":", MakeFolder("conda/bin"), ":",
                           MakeFolder("other/bin")));
  Set("HOME", Path("home"));
  EXPECT_THAT(PyarrowFolders(), ElementsAre());
  Write("conda/bin/python3", "");
  Write("other/bin/python3", "");
  const std::string of_conda = MakeFolder("conda/lib/python3.12/site-packages/pyarrow");
  const std::string of_other = MakeFolder("other/lib/python3.12/dist-packages/pyarrow");
  const std::string of_home = MakeFolder("home/.local/lib/python3.11/site-packages/pyarrow");
  EXPECT_THAT(PyarrowFolders(), ElementsAre(of_conda, of_other, of_home));
  Set("VIRTUAL_ENV", Path("venv"));
  const std::string of_venv = MakeFolder("venv/lib/python3.13/site-packages/pyarrow");
  EXPECT_THAT(PyarrowFolders(), ElementsAre(of_venv, of_conda, of_other, of_home));
}

TEST_F(ParquetPlugin, TheWayToConvertIsACommandForThisFile) {
  EXPECT_THAT(ConvertParquetHint("data/a.parquet"),
              HasSubstr("COPY (FROM 'data/a.parquet') TO 'data/a.jsonl' (FORMAT json)"));
  EXPECT_THAT(ConvertParquetHint("data/$(x).parquet"), Not(HasSubstr("$(x)")));
  EXPECT_THAT(ConvertParquetHint("4f1c0bd2"), HasSubstr("'FILE.parquet'"));
}

}  // namespace
}  // namespace trainctl::data
