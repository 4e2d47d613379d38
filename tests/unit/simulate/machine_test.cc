#include "simulate/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "absl/strings/str_replace.h"
#include "base/files.h"
#include "base/status.h"

namespace trainctl::simulate {
namespace {

using ::testing::HasSubstr;

MachineProfile SomeProfile() {
  MachineProfile profile{.cpu = "a cpu", .cores = 8, .measured = {}};
  for (const auto& [workers, threads] : {std::pair<int64_t, int64_t>{1, 8}, {8, 1}}) {
    MeasuredRates measured{.dtype = DType::kF32, .workers = workers, .threads = threads, .rates = {}};
    for (int i = 0; i < kNumResources; ++i) {
      measured.rates[static_cast<Resource>(i)] = static_cast<double>(i + 1) / static_cast<double>(threads);
    }
    measured.rates.overlap = false;
    measured.rates.measured = true;
    profile.measured.push_back(measured);
  }
  profile.devices.push_back(
      {.name = "NVIDIA Z9000",
       .bytes_per_second = 3e12,
       .launch_seconds = 2e-6,
       .products = {{{DType::kBF16, 8192, 4096, 1024, 8}, 1e-3}, {{DType::kF32, 512, 512, 512, 4}, 5e-3}},
       .attention = {
           {FusedAttention::kVendor,
            {.tokens = 512, .seq_len = 256, .heads = 7, .head_dim = 64, .backward = true},
            2e-3},
           {FusedAttention::kFlash2, {.tokens = 512, .seq_len = 512, .heads = 7, .head_dim = 64}, 4e-3}}});
  return profile;
}

TEST(MachineProfile, SurvivesTheRoundTrip) {
  const MachineProfile profile = SomeProfile();
  const auto read = MachineFromJson(MachineToJson(profile), "m.json");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->cpu, profile.cpu);
  EXPECT_EQ(read->cores, profile.cores);
  ASSERT_EQ(read->measured.size(), profile.measured.size());
  for (size_t i = 0; i < profile.measured.size(); ++i) {
    EXPECT_EQ(read->measured[i].workers, profile.measured[i].workers);
    EXPECT_EQ(read->measured[i].threads, profile.measured[i].threads);
    EXPECT_EQ(read->measured[i].rates, profile.measured[i].rates);
  }
  const MeasuredDevice* device = read->FindDevice("NVIDIA Z9000");
  ASSERT_NE(device, nullptr);
  EXPECT_EQ(read->FindDevice("NVIDIA"), nullptr);
  EXPECT_EQ(device->bytes_per_second, 3e12);
  EXPECT_EQ(device->launch_seconds, 2e-6);
  ASSERT_EQ(device->products.size(), 2);
  EXPECT_EQ(device->products[0].product, profile.devices[0].products[0].product);
  EXPECT_EQ(device->products[0].seconds, 1e-3);
  ASSERT_EQ(device->attention.size(), 2);
  for (size_t i : {0, 1}) {
    EXPECT_EQ(device->attention[i].fused, profile.devices[0].attention[i].fused);
    EXPECT_EQ(device->attention[i].kernel, profile.devices[0].attention[i].kernel);
    EXPECT_EQ(device->attention[i].seconds, profile.devices[0].attention[i].seconds);
  }
}

TEST(MachineProfile, OneOfACpuAloneHasNoDevices) {
  MachineProfile profile = SomeProfile();
  profile.devices.clear();
  const std::string text = MachineToJson(profile);
  EXPECT_THAT(text, ::testing::Not(HasSubstr("devices")));
  const auto read = MachineFromJson(text, "m.json");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(read->devices.empty());
}

TEST(MachineProfile, DamageIsAnErrorThatNamesTheField) {
  const std::string text = MachineToJson(SomeProfile());
  const std::pair<std::pair<const char*, const char*>, const char*> damages[] = {
      {{"machine.v1", "machine.v9"}, "schema"},
      {{"\"cores\": 8", "\"cores\": 0"}, "cores"},
      {{"\"measured\": [", "\"measured\": 3, \"x\": ["}, "measured"},
      {{"\"workers\": 8", "\"workers\": -8"}, "workers"},
      {{"\"matmul_flops\": 1.0", "\"matmul_flops\": -1.0"}, "matmul_flops"},
      {{"\"steps\"", "\"stepz\""}, "steps"},
      {{"\"devices\": [", "\"devices\": 3, \"x\": ["}, "devices"},
      {{"\"launch_seconds\": 2e-06", "\"launch_seconds\": 0"}, "devices[0]: field 'launch_seconds'"},
      {{"\"products\": [", "\"products\": [1, "}, "products[0]: must be an object"},
      {{"\"rows\": 8192.0", "\"rows\": -1"}, "products[0]: field 'rows'"},
      {{"\"vendor\"", "\"sdpa\""}, "attention[0]: field 'kernel'"},
      {{"\"dtype\": \"BF16\"", "\"dtype\": \"F32\""}, "products: none is of BF16"},
      {{"\"seconds\": 0.004", "\"seconds\": 1e999"}, "m.json"},
      {{"\"seconds\": 0.004", "\"seconds\": 1e308"}, "attention[1]: field 'seconds'"},
      {{"\"seq_len\": 256.0", "\"seq_len\": 0.2"}, "attention[0]: field 'seq_len'"},
  };
  for (const auto& [replacement, named] : damages) {
    const std::string damaged = absl::StrReplaceAll(text, {replacement});
    ASSERT_NE(damaged, text) << named;
    const absl::Status status = MachineFromJson(damaged, "m.json").status();
    EXPECT_EQ(ExitCodeFor(status), ExitCode::kBadData) << named << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(named));
  }
  for (size_t length = 0; length + 1 < text.size(); length += 5) {
    EXPECT_FALSE(MachineFromJson(absl::string_view(text).substr(0, length), "m.json").ok());
  }
}

TEST(MachineProfile, WhatWasMeasuredIsTakenAsItIs) {
  const MachineProfile profile = SomeProfile();
  EXPECT_EQ(profile.RatesFor(DType::kF32, 1, 8), profile.measured[0].rates);
  EXPECT_EQ(profile.RatesFor(DType::kF32, 8, 1), profile.measured[1].rates);
  EXPECT_FALSE(profile.RatesFor(DType::kBF16, 1, 8).has_value());
}

TEST(MachineProfile, OtherLoadsScaleWithTheThreadsThatRun) {
  const MachineProfile profile = SomeProfile();
  const Rates all = profile.measured[0].rates;
  // Six threads of eight: products take 8/6 of the time; what is fixed or goes over a link does not change.
  const Rates six = *profile.RatesFor(DType::kF32, 1, 6);
  EXPECT_DOUBLE_EQ(six[Resource::kMatmulFlops], all[Resource::kMatmulFlops] * 8 / 6);
  EXPECT_EQ(six[Resource::kCollectives], all[Resource::kCollectives]);
  // Sixteen workers on eight cores: each has half a core.
  const Rates crowded = *profile.RatesFor(DType::kF32, 16, 1);
  EXPECT_DOUBLE_EQ(crowded[Resource::kMatmulFlops], 2 * profile.measured[1].rates[Resource::kMatmulFlops]);
}

class MachineProfileFile : public ::testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/machine-test-XXXXXX";
    ASSERT_NE(mkdtemp(path), nullptr);
    folder_ = path;
    if (const char* config = std::getenv("XDG_CONFIG_HOME")) before_ = config;
    setenv("XDG_CONFIG_HOME", path, 1);
    ASSERT_TRUE(MakeDirs(folder_ + "/trainctl").ok());
    host_.cpu = "a cpu";
    host_.allowed_cores = 8;
  }
  void TearDown() override {
    before_.empty() ? unsetenv("XDG_CONFIG_HOME") : setenv("XDG_CONFIG_HOME", before_.c_str(), 1);
    EXPECT_TRUE(RemoveAll(folder_).ok());
  }
  std::string folder_, before_;
  cluster::Host host_;
  std::vector<std::string> notes_;
};

TEST_F(MachineProfileFile, IsTakenWhereItWasMeasured) {
  EXPECT_EQ(MachineProfilePath(), folder_ + "/trainctl/machine.json");
  auto loaded = LoadMachineProfile(host_, notes_);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_FALSE(loaded->has_value());
  ASSERT_TRUE(WriteFileAtomic(MachineProfilePath(), MachineToJson(SomeProfile())).ok());
  loaded = LoadMachineProfile(host_, notes_);
  ASSERT_TRUE(loaded.ok() && loaded->has_value());
  EXPECT_TRUE(notes_.empty());

  // A device is what its name says, whatever the CPU.
  host_.allowed_cores = 4;
  loaded = LoadMachineProfile(host_, notes_);
  ASSERT_TRUE(loaded.ok() && loaded->has_value());
  EXPECT_TRUE((*loaded)->measured.empty());
  EXPECT_EQ((*loaded)->devices.size(), 1);
  ASSERT_EQ(notes_.size(), 1);
  EXPECT_THAT(notes_[0], HasSubstr("calibrate"));

  MachineProfile of_cpu = SomeProfile();
  of_cpu.devices.clear();
  ASSERT_TRUE(WriteFileAtomic(MachineProfilePath(), MachineToJson(of_cpu)).ok());
  loaded = LoadMachineProfile(host_, notes_);
  ASSERT_TRUE(loaded.ok());
  EXPECT_FALSE(loaded->has_value());
}

TEST_F(MachineProfileFile, DamageIsNotPassedOver) {
  ASSERT_TRUE(WriteFileAtomic(MachineProfilePath(), "{").ok());
  EXPECT_EQ(ExitCodeFor(LoadMachineProfile(host_, notes_).status()), ExitCode::kBadData);
}

}  // namespace
}  // namespace trainctl::simulate
