#include "recipe/recipe_json.h"

#include <algorithm>

#include "absl/strings/str_split.h"
#include "base/json.h"
#include "recipe/show.h"
#include "recipe_test_util.h"

namespace trainctl::recipe {
namespace {

using ::testing::HasSubstr;

// A recipe in which every field has a value of its own, so that a field that is not stored or not read
// back shows.
const std::vector<std::string>& ManySets() {
  static const auto* const sets = new std::vector<std::string>{
      "run.name=x \"y\" \\ é",
      "run.root=out",
      "run.seed=9223372036854775807",
      "run.deterministic=true",
      "run.graphs=false",
      "run.check_kernels=true",
      "run.attention=flash",
      "model.layers=3",
      "model.hidden=96",
      "model.heads=6",
      "model.kv_heads=3",
      "model.head_dim=20",
      "model.ffn=100",
      "model.vocab=301",
      "model.max_position=4096",
      "model.tie_embeddings=true",
      "model.qkv_bias=true",
      "model.attention_out_bias=true",
      "model.mlp_bias=true",
      "model.activation=gelu",
      "model.norm_eps=1.1e-7",
      "model.rope_theta=12345.678",
      "model.rope_scaling={factor=3.3, low_freq_factor=1.5, high_freq_factor=5, "
      "original_max_position=77}",
      "model.init_std=0.0123",
      "model.weights=ckpt/step-1",
      "data.seq_len=96",
      "data.packing=continuous",
      "data.long_documents=cut",
      "data.on_bad_line=skip",
      "data.shuffle=false",
      "data.train=[{name='a', files=['*.x'], kind='text', weight=0.1}, "
      "{name='b', files=['b'], kind='jsonl', text_field='t', prompt_field='p', weight=0.3}]",
      "data.eval=[{name='h', holdout=0.07}, {name='e', files=['e']}]",
      "train.steps=1234",
      "train.batch_sequences=36",
      "train.micro_batch=3",
      "train.precision=fp32",
      "train.z_loss=1e-4",
      "train.eval_every=7",
      "train.eval_batches=9",
      "train.on_nonfinite=skip",
      "optimizer.lr=0.1",
      "optimizer.betas=[0.7, 0.123456789012345]",
      "optimizer.eps=3e-9",
      "optimizer.weight_decay=0.05",
      "optimizer.no_decay=['*q_proj*']",
      "optimizer.clip_norm=0.9",
      "optimizer.lr_schedule=wsd",
      "optimizer.warmup_steps=11",
      "optimizer.decay_steps=1000",
      "optimizer.decay_fraction=0.33",
      "optimizer.min_lr=1e-3",
      "parallel.dp_replicate=2",
      "parallel.dp_shard=3",
      "parallel.tp=1",
      "parallel.cp=1",
      "parallel.pp=1",
      "parallel.ep=1",
      "parallel.zero_stage=2",
      "parallel.recompute=full",
      "parallel.prefetch=false",
      "cluster.nodes=2",
      "cluster.devices_per_node=3",
      "cluster.memory_limit=1234.567KB",
      "cluster.threads_per_worker=2",
      "checkpoint.every_steps=100",
      "checkpoint.every=1.5h",
      "checkpoint.keep=2",
      "checkpoint.keep_every_steps=500",
      "checkpoint.keep_best=h",
      "checkpoint.async=true",
      "checkpoint.at_end=false",
      "checkpoint.when_busy=skip",
      "launch.backend=ssh",
      "launch.max_restarts=5",
      "launch.detect_timeout=2.5s",
      "launch.stop_timeout=1m",
      "launch.log_limit=1MB",
      "launch.hang_timeout=20m",
      "launch.collective_timeout=20m",
      "launch.env={B='2', A='\"1\"'}",
      "launch.coordinator_timeout=90s",
      "launch.interface=10.0.0.0/8",
      "launch.pass_env=['HF_TOKEN', 'HOME']",
      "launch.on_event=['bin/notify', '-x', 'a/b']",
      "launch.ssh.hosts=['n0', 'me@n1', 'fd00::7']",
      "launch.ssh.options=['-F', 'config', '-v']",
      "launch.ssh.program=bin/trainctl",
      "metrics.every_steps=4",
      "metrics.tensorboard=true",
      "metrics.trace_steps=[1, 2]",
      "metrics.profile_steps=[3]",
      "metrics.prometheus=metrics/run.prom",
      "parallel.etp=1",
      "parallel.virtual_stages=1",
      "cluster.node=dgx-h100",
      "cluster.memory=141GB",
      "cluster.memory_bandwidth=3.35TB/s",
      "cluster.half_flops=989T",
      "cluster.fp8_flops=1979T",
      "cluster.scale_up_bandwidth=450GB/s",
      "cluster.scale_out_bandwidth=400Gb/s",
      "cluster.nics=9",
      "cluster.host_memory=2TiB",
      "plan.objective=cost",
      "plan.price_per_gpu_hour=2.5",
      "plan.deadline=720h",
      "plan.gpu_mtbf=50000h",
      "plan.restart_time=5m"};
  return *sets;
}

Recipe Everything() {
  absl::StatusOr<LoadedRecipe> loaded = FakeWorld().Load(kMinimal, ManySets());
  if (!loaded.ok()) {
    ADD_FAILURE() << loaded.status();
    return {};
  }
  return loaded->recipe;
}

// Fields that have one legal value in this version, or that go with another optimizer, backend or family.
bool HasOneValueOnly(const std::string& name) {
  static const char* const kNames[] = {"recipe_version",
                                       "model.from",
                                       "model.family",
                                       "model.sliding_window",
                                       "model.rope_share",
                                       "data.tokenizer",
                                       "data.end_of_document",
                                       "train.epochs",
                                       "train.master_dtype",
                                       "train.gradient_dtype",
                                       "optimizer.name",
                                       "optimizer.momentum",
                                       "launch.ssh.hosts_file",
                                       "launch.slurm.step_options",
                                       "launch.slurm.submit_options",
                                       "launch.slurm.save_before",
                                       "launch.kubernetes.name",
                                       "launch.kubernetes.namespace",
                                       "launch.kubernetes.image",
                                       "launch.kubernetes.claim",
                                       "launch.kubernetes.mount",
                                       "launch.kubernetes.user",
                                       "cluster.device",
                                       "plan.framework",
                                       "model.rope_scaling",
                                       "model.rope_scaling.type",
                                       "model.rope_scaling.beta_fast",
                                       "model.rope_scaling.beta_slow",
                                       "model.rope_scaling.truncate",
                                       "model.rope_scaling.attention_factor",
                                       "model.rope_scaling.short_factor",
                                       "model.rope_scaling.long_factor",
                                       "model.rope_scaling.alpha",
                                       "model.layer_types",
                                       "model.window_rope_theta",
                                       "model.attention_scale",
                                       "model.attention_softcap",
                                       "model.logit_softcap",
                                       "model.embedding_multiplier",
                                       "model.residual_multiplier",
                                       "model.logit_multiplier",
                                       "parallel.schedule",
                                       "parallel.schedule_file",
                                       "parallel.passes",
                                       "parallel.recomputed_layers",
                                       "parallel.context",
                                       "parallel.stage_layers",
                                       "parallel.offload",
                                       "parallel.sequence_parallel"};
  return std::count(std::begin(kNames), std::end(kNames), name) > 0;
}

// A worker has nothing but the stored recipe.
TEST(RecipeJson, ModelsOfOtherFamiliesAreStored) {
  for (const char* family :
       {"model.family=mistral model.sliding_window=512",
        "model.family=nemotron model.rope_share=0.25",
        "model.family=nemotron model.rope_share=1",
        "model.family=gemma",
        "model.family=qwen3",
        "model.family=gemma2",
        "model.family=gemma3_text model.layer_types=['full_attention']",
        "model.family=gemma3_text model.sliding_window=9 model.window_rope_theta=77 model.logit_softcap=3",
        "model.family=gemma2 model.attention_softcap=0 model.attention_scale=0.3 "
        "model.layer_types=['full_attention','sliding_attention','sliding_attention']",
        "model.family=granite model.embedding_multiplier=2 model.residual_multiplier=0.2 "
        "model.logit_multiplier=0.25 model.attention_scale=0.1",
        "model.family=smollm3 model.layer_types=['full_attention_nope','full_attention']",
        "model.family=cohere2 model.logit_multiplier=1",
        "model.family=exaone4",
        "model.family=phi",
        "model.family=gpt2 model.max_position=128",
        "model.family=gpt_neox model.rope_share=0.5",
        "model.family=gpt_bigcode model.kv_heads=1",
        "model.family=gpt_neox_sequential",
        "model.family=falcon_40b",
        "model.family=falcon model.kv_heads=1",
        "model.family=internlm2",
        "model.family=exaone",
        "model.family=gptj model.rope_share=0.5",
        "model.family=opt model.max_position=128",
        "model.family=granitemoehybrid model.logit_multiplier=0.25",
        "model.family=llama model.rope_scaling={type='linear',factor=2}",
        "model.family=llama model.rope_scaling={type='yarn',factor=2,original_max_position=99}",
        "model.family=llama model.rope_scaling={type='yarn',factor=2,original_max_position=99,beta_fast=16,"
        "beta_slow=2,truncate=false,attention_factor=1.5}",
        "model.family=llama model.rope_scaling={type='dynamic',factor=2,original_max_position=8192}",
        "model.family=gemma2 model.activation=silu",
        "model.family=hunyuan_v1_dense model.rope_scaling={type='ntk_alpha',alpha=1000}",
        "model.family=phi3 model.rope_share=0.5 model.rope_scaling={type='longrope',original_max_position=99,"
        "attention_factor=1.5,short_factor=[1,1.25,1.5,2],long_factor=[1.5,2,3,4.5]}"}) {
    std::vector<std::string> sets = absl::StrSplit(family, ' ');
    sets.insert(sets.end(), {"model.preset=default", "model.layers=3", "model.hidden=64", "model.heads=4",
                             "model.ffn=96", "model.vocab=300", "data.seq_len=64"});
    const absl::StatusOr<LoadedRecipe> loaded = FakeWorld().Load(kMinimal, sets);
    ASSERT_TRUE(loaded.ok()) << family << ": " << loaded.status();
    const model::Architecture& spec = loaded->recipe.model.spec;
    const absl::StatusOr<Recipe> stored = RecipeFromJson(ToJson(loaded->recipe), "recipe.json");
    ASSERT_TRUE(stored.ok()) << family << ": " << stored.status();
    EXPECT_EQ(stored->model.spec, spec) << family;
  }
}

TEST(RecipeJson, TheTestRecipeLeavesNoFieldAtItsDefault) {
  const Recipe recipe = Everything();
  Recipe plain;
  Schema::ResizeList(plain, "data.train", 2);
  Schema::ResizeList(plain, "data.eval", 2);
  for (const Field& field : GetSchema().fields()) {
    if (!field.get || HasOneValueOnly(field.name)) continue;
    bool differs = false;
    const size_t count = field.in_list() ? 2 : 1;
    for (size_t i = 0; i < count; ++i) differs |= field.get(recipe, i) != field.get(plain, i);
    const bool is_eval_detail = field.name == "data.eval[].kind" || field.name == "data.eval[].text_field" ||
                                field.name == "data.eval[].prompt_field";
    EXPECT_TRUE(differs || is_eval_detail) << field.name;
  }
}

TEST(RecipeJson, ReadingGivesBackExactlyWhatWasWritten) {
  for (const Recipe& recipe :
       {Everything(), FakeWorld().Load(kMinimal)->recipe,
        FakeWorld().Load(kMinimal, {"optimizer.name=sgd", "optimizer.momentum=0.7"})->recipe,
        FakeWorld()
            .Load(kMinimal, {"launch.backend=kubernetes", "launch.kubernetes.name=llm",
                             "launch.kubernetes.namespace=team",
                             "launch.kubernetes.image=registry/trainctl:1", "launch.kubernetes.claim=disk",
                             "launch.kubernetes.mount=/mnt/disk", "launch.kubernetes.user=5012"})
            ->recipe,
        FakeWorld().Load(kMinimal, {"optimizer.name=lion", "optimizer.betas=[0.95, 0.98]"})->recipe}) {
    const std::string json = ToJson(recipe);
    const absl::StatusOr<Recipe> read = RecipeFromJson(json, "recipe.json");
    ASSERT_TRUE(read.ok()) << read.status();
    for (const Field& field : GetSchema().fields()) {
      if (!field.get) continue;
      const size_t count = field.in_list() ? Schema::ListSize(recipe, field.list_name()) : 1;
      for (size_t i = 0; i < count; ++i) EXPECT_EQ(field.get(*read, i), field.get(recipe, i)) << field.name;
    }
    EXPECT_EQ(read->model.spec, recipe.model.spec);
    EXPECT_EQ(read->data.train.size(), recipe.data.train.size());
    EXPECT_EQ(read->data.train[0].holdout, recipe.data.train[0].holdout);
    EXPECT_EQ(ToJson(*read), json);
  }
}

TEST(RecipeJson, HoldsWhatTheOptimizerReads) {
  const auto stored = [](const char* name) {
    return Json::parse(ToJson(FakeWorld().Load(kMinimal, {absl::StrCat("optimizer.name=", name)})->recipe))
        .at("optimizer");
  };
  const auto has = [&](const char* name, const char* field) { return stored(name).contains(field); };
  EXPECT_TRUE(has("adamw", "betas") && has("adamw", "eps") && !has("adamw", "momentum"));
  EXPECT_TRUE(has("lion", "betas") && !has("lion", "eps") && !has("lion", "momentum"));
  EXPECT_TRUE(!has("sgd", "betas") && !has("sgd", "eps") && has("sgd", "momentum"));
}

TEST(RecipeJson, EveryTruncationIsAnError) {
  const std::string json = ToJson(Everything());
  for (size_t length = 0; length + 2 < json.size(); length += 7) {
    const absl::StatusOr<Recipe> read = RecipeFromJson(absl::string_view(json).substr(0, length), "r.json");
    ASSERT_FALSE(read.ok()) << length;
    EXPECT_EQ(ExitCodeFor(read.status()), ExitCode::kBadData);
  }
}

std::string JsonErrorOf(const std::string& from, const std::string& to) {
  std::string json = ToJson(FakeWorld().Load(kMinimal)->recipe);
  const size_t at = json.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  if (at != std::string::npos) json.replace(at, from.size(), to);
  const absl::StatusOr<Recipe> read = RecipeFromJson(json, "r.json");
  if (read.ok()) return "OK";
  EXPECT_EQ(ExitCodeFor(read.status()), ExitCode::kBadData) << read.status();
  return std::string(read.status().message());
}

TEST(RecipeJson, DamageIsNamed) {
  EXPECT_EQ(JsonErrorOf("recipe.v1", "recipe.v2"),
            "r.json: schema 'trainctl.recipe.v2' is newer than this program supports; use a newer trainctl");
  EXPECT_EQ(JsonErrorOf("trainctl.recipe.v1", "plan"), "r.json: schema 'plan' is not a stored recipe");
  EXPECT_EQ(JsonErrorOf("\"steps\"", "\"stepz\""), "r.json: unexpected field 'train.stepz'");
  EXPECT_EQ(
      JsonErrorOf("\"steps\": 100", "\"steps\": -1"),
      "r.json: train.steps: -1 is out of range; expected a whole number from 1 to 1e12, such as 10_000 or "
      "\"10K\"");
  EXPECT_EQ(
      JsonErrorOf("\"steps\": 100", "\"steps\": 99999999999999999999"),
      "r.json: train.steps: expected a whole number from 1 to 1e12, such as 10_000 or \"10K\", got 1e20");
  EXPECT_EQ(JsonErrorOf("\"steps\": 100,", ""), "r.json: train.steps is missing");
  EXPECT_EQ(JsonErrorOf("\"heads\": 4", "\"heads\": null"),
            "r.json: model.heads: expected a whole number from 1 to 1e9, got null");
  EXPECT_EQ(JsonErrorOf("\"train\": [", "\"train\": [1,"), "r.json: unexpected field 'data.train'");
  EXPECT_THAT(JsonErrorOf("\"layers\": 4,", ""), HasSubstr("layers"));
}

TEST(RecipeJson, ALaterFieldThatAnOlderFileLacksTakesItsDefault) {
  EXPECT_EQ(JsonErrorOf("\"micro_batch\": \"auto\",", ""), "OK");
}

// A run from before several machines, whose timeouts only those would mind.
TEST(RecipeJson, AnOldRunOfOneMachineIsReadWhateverItsTimeouts) {
  Json json = Json::parse(ToJson(FakeWorld().Load(kMinimal, {"launch.detect_timeout=10m"})->recipe));
  for (const char* key : {"coordinator_timeout", "interface", "pass_env", "ssh"}) json["launch"].erase(key);
  json["launch"]["collective_timeout"] = "1s";
  const absl::StatusOr<Recipe> read = RecipeFromJson(json.dump(), "r.json");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->launch.coordinator_timeout, absl::Seconds(60));
  EXPECT_FALSE(read->launch.interface.has_value());
}

TEST(Show, TheTextIsARecipeOfTheSameValues) {
  for (const std::vector<std::string>& sets : {ManySets(), std::vector<std::string>()}) {
    const absl::StatusOr<LoadedRecipe> loaded = FakeWorld().Load(kMinimal, sets);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    const std::string toml = ToToml(*loaded);
    const absl::StatusOr<LoadedRecipe> again =
        LoadRecipeText(toml, "/elsewhere/shown.toml", {}, FakeWorld().access());
    ASSERT_TRUE(again.ok()) << again.status() << toml;
    EXPECT_EQ(ToJson(again->recipe), ToJson(loaded->recipe));
  }
}

TEST(Show, EachValueHasItsOrigin) {
  const absl::StatusOr<LoadedRecipe> loaded = FakeWorld().Load(kMinimal, {"optimizer.lr=0.5"});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const std::string toml = ToToml(*loaded);
  EXPECT_THAT(toml, HasSubstr("\nsteps = 100                                   # r.toml:9:1\n"));
  EXPECT_THAT(toml, HasSubstr("\nlr = 0.5                                      # --set\n"));
  EXPECT_THAT(toml, HasSubstr("\neps = 1e-8                                    # default\n"));
  const std::string json = ToShowJson(*loaded);
  EXPECT_THAT(json, HasSubstr("\"schema\": \"trainctl.recipe-show.v1\""));
  EXPECT_THAT(json, HasSubstr("\"optimizer.lr\": \"--set\""));
}

}  // namespace
}  // namespace trainctl::recipe
