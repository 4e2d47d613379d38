#include "run/model_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <string>

#include "base/files.h"
#include "base/folder_entries.h"
#include "base/status.h"

namespace trainctl::run {
namespace {

using testing::ElementsAre;

class ModelFilesTest : public testing::Test {
 protected:
  ModelFilesTest() {
    EXPECT_NE(::mkdtemp(folder_.data()), nullptr);
    for (const char* path : {"/model/config.json", "/model/generation_config.json", "/model/tokenizer.json",
                             "/model/tokenizer_config.json", "/model/model.safetensors", "/model/README.md",
                             "/other/tokenizer.model", "/other/tokenizer_config.json", "/lone/own.json"}) {
      const std::string full = folder_ + path;
      EXPECT_TRUE(MakeDirs(full.substr(0, full.rfind('/'))).ok());
      EXPECT_TRUE(WriteFileAtomic(full, std::string("{ ") + path).ok());
    }
  }
  ~ModelFilesTest() override { (void)RemoveAll(folder_); }

  std::vector<std::string> Keep(const std::string& model, const std::string& tokenizer) {
    const auto full = [&](const std::string& name) { return name.empty() ? "" : folder_ + name; };
    EXPECT_TRUE(KeepModelFiles({.folder = full(model), .tokenizer = full(tokenizer)}, kept()).ok());
    return FolderEntries(kept());
  }
  std::string kept() const { return folder_ + "/kept"; }
  std::string Text(const std::string& name) const { return *ReadFile(kept() + "/" + name); }

  std::string folder_ = "/tmp/trainctl-model-files-XXXXXX";
};

TEST_F(ModelFilesTest, OfAFolderAllButWeightsAndWhatIsForPeople) {
  EXPECT_THAT(Keep("/model", ""), ElementsAre("config.json", "generation_config.json", "tokenizer.json",
                                              "tokenizer_config.json"));
  EXPECT_EQ(Text("tokenizer.json"), "{ /model/tokenizer.json");
}

TEST_F(ModelFilesTest, ATokenizerOfAnotherFolderTakesThePlaceOfTheModels) {
  EXPECT_THAT(
      Keep("/model", "/other/tokenizer.model"),
      ElementsAre("config.json", "generation_config.json", "tokenizer.model", "tokenizer_config.json"));
  EXPECT_EQ(Text("tokenizer_config.json"), "{ /other/tokenizer_config.json");
}

TEST_F(ModelFilesTest, ATokenizerOfAnotherNameGetsItsUsualOne) {
  EXPECT_THAT(Keep("", "/lone/own.json"), ElementsAre("tokenizer.json"));
  EXPECT_EQ(Text("tokenizer.json"), "{ /lone/own.json");
}

TEST_F(ModelFilesTest, AGitLfsPointerIsNotKept) {
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n";
  for (const char* path : {"/model/generation_config.json", "/lone/own.json"}) {
    ASSERT_TRUE(WriteFileAtomic(folder_ + path, pointer).ok());
  }
  for (const ModelFileSources& sources :
       {ModelFileSources{.folder = folder_ + "/model", .tokenizer = ""},
        ModelFileSources{.folder = "", .tokenizer = folder_ + "/lone/own.json"}}) {
    const absl::Status status = KeepModelFiles(sources, kept());
    EXPECT_EQ(ExitCodeFor(status), ExitCode::kBadData) << status;
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr("git lfs pull"));
  }
}

TEST_F(ModelFilesTest, WhereThereIsNothingNoFolderIsMade) {
  EXPECT_THAT(Keep("", ""), ElementsAre());
  EXPECT_FALSE(PathExists(kept()));
}

}  // namespace
}  // namespace trainctl::run
