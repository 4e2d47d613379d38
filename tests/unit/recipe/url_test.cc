#include "recipe/url.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "base/status.h"

namespace trainctl::recipe {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Url, IsRefusedWithTheCommandThatDownloadsIt) {
  for (const auto& [url, command] : {
           std::pair("https://huggingface.co/Qwen/Qwen2-0.5B",
                     "hf download Qwen/Qwen2-0.5B --local-dir Qwen2-0.5B"),
           {"https://hf.co/Qwen/Qwen2-0.5B/tree/main", "hf download Qwen/Qwen2-0.5B --local-dir Qwen2-0.5B"},
           {"https://huggingface.co/a/b/blob/v1/config.json",
            "hf download a/b config.json --revision v1 --local-dir b"},
           {"https://huggingface.co/datasets/a/b", "hf download a/b --repo-type dataset --local-dir b"},
           {"https://huggingface.co/datasets/a/b/resolve/main/data/x.parquet?download=true",
            "hf download a/b data/x.parquet --repo-type dataset --local-dir b"},
           {"hf://datasets/a/b/x.jsonl", "hf download a/b x.jsonl --repo-type dataset --local-dir b"},
           {"hf://a/b", "hf download a/b --local-dir b"},
           {"hf://a/b@v1/x.json", "hf download a/b x.json --revision v1 --local-dir b"},
           {"https://HuggingFace.co/gpt2", "hf download gpt2 --local-dir gpt2"},
           {"https://huggingface.co/gpt2/tree/main/onnx",
            "hf download gpt2 --include 'onnx/*' --local-dir gpt2"},
           {"https://huggingface.co/docs/hub", "curl -LO https://huggingface.co/docs/hub"},
           {"https://host/a.txt", "curl -LO https://host/a.txt"},
           {"ftp://host/a.txt", "curl -LO ftp://host/a.txt"},
           {"s3a://b/x", "aws s3 cp s3://b/x ."},
           {"r2://b/x", "aws s3 cp s3://b/x . --endpoint-url https://ACCOUNT_ID.r2.cloudflarestorage.com"},
           {"s3://b/d/", "aws s3 cp --recursive s3://b/d/ ."},
           {"gs://b/x", "gcloud storage cp gs://b/x ."},
           {"gs://b/d/", "gcloud storage cp --recursive gs://b/d/ ."},
           {"az://c/d/x.txt",
            "az storage blob download --account-name ACCOUNT --container-name c --name d/x.txt --file x.txt"},
           {"abfss://c@acc.dfs.core.windows.net/d/x.txt",
            "az storage blob download --account-name acc --container-name c --name d/x.txt --file x.txt"},
           {"hdfs://n/x", "hdfs dfs -get hdfs://n/x ."},
       }) {
    const absl::Status status = RefuseUrl(url);
    EXPECT_EQ(ExitCodeFor(status), ExitCode::kUsage) << url;
    EXPECT_THAT(std::string(status.message()), EndsWith(std::string("; download it: ") + command));
  }
  EXPECT_THAT(std::string(RefuseUrl("oss://b/x").message()),
              EndsWith("; download it with a tool for oss:// addresses"));
  EXPECT_THAT(std::string(RefuseUrl("file:///d/a.txt").message()), EndsWith("; use the path: /d/a.txt"));
}

TEST(Url, IsPipedWhereItsToolPrints) {
  EXPECT_THAT(std::string(RefuseUrl("s3a://b/x", "reader").message()),
              HasSubstr(", or pipe it in: aws s3 cp s3://b/x - | reader"));
  EXPECT_THAT(std::string(RefuseUrl("https://huggingface.co/a/b", "reader").message()),
              Not(HasSubstr("curl")));
}

TEST(Url, APathIsNone) {
  for (const char* path : {"a:b/x", "://x", "/a/b", "dir/a://b"}) EXPECT_TRUE(RefuseUrl(path).ok()) << path;
}

}  // namespace
}  // namespace trainctl::recipe
