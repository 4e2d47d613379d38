#include "recipe/foreign_words.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "recipe/schema.h"

namespace trainctl::recipe {
namespace {

std::string OursFor(absl::string_view typed, absl::Span<const ForeignWord> words) {
  const ForeignWord* const foreign = FindForeign(typed, words);
  return foreign == nullptr ? "" : foreign->ours;
}

TEST(ForeignWords, LeadToKeysThatThereAre) {
  std::set<std::string> seen, leaves;
  for (const Field& field : GetSchema().fields()) leaves.insert(field.name.substr(field.name.rfind('.') + 1));
  for (const ForeignWord& foreign : ForeignKeys()) {
    const std::string ours = foreign.ours;
    const bool exists = GetSchema().Find(ours) != nullptr || GetSchema().IsList(ours);
    EXPECT_NE(exists, foreign.advice[0] != '\0') << foreign.word << " leads to " << ours;
    EXPECT_TRUE(seen.insert(foreign.word).second) << foreign.word << " is listed twice";
    EXPECT_FALSE(leaves.contains(foreign.word)) << foreign.word << " is a key of ours";
  }
}

TEST(ForeignWords, MeanTheSame) {
  const std::map<std::string, std::string> meanings = {
      {"gradient_clip", "optimizer.clip_norm"},
      {"eval_iter", "train.eval_batches"},
      {"eval_batch_size", "train.micro_batch"},
      {"eval_dataset", "data.eval"},
      {"max_iters", "train.steps"},
      {"max_epochs", "train.epochs"},
      {"gradient_accumulation_steps", "train.batch_sequences"},
      {"accumulate_grad_batches", "train.batch_sequences"},
      {"bf16", "train.precision"},
      {"val_check_interval", "train.eval_every"},
      {"limit_val_batches", "train.eval_batches"},
      {"num_warmup_steps", "optimizer.warmup_steps"},
      {"eta_min", "optimizer.min_lr"},
      {"decay_ratio", "optimizer.decay_fraction"},
      {"cutoff_len", "data.seq_len"},
      {"val_set_size", "data.eval[].holdout"},
      {"dataset_text_field", "data.train[].text_field"},
      {"completion_only_loss", "data.train[].prompt_field"},
      {"sample_packing", "data.packing"},
      {"init_from", "model.weights"},
      {"num_kv_heads", "model.kv_heads"},
      {"kv_channels", "model.head_dim"},
      {"attn_implementation", "run.attention"},
      {"save_steps", "checkpoint.every_steps"},
      {"save_total_limit", "checkpoint.keep"},
      {"save_top_k", "checkpoint.keep_best"},
      {"steps_per_print", "metrics.every_steps"},
      {"wandb_project", "launch.on_event"},
      {"no_cuda", "cluster.device"},
      {"out_dir", "run.root"},
      {"seed_everything", ""},
      // The last part of a name has the meaning that it has in its table.
      {"checkpoint.interval", "checkpoint.every_steps"},
      {"validation.steps", "train.eval_batches"},
      {"training.global_batch_size", "train.batch_sequences"},
      {"interval", ""},
  };
  for (const auto& [word, ours] : meanings) EXPECT_EQ(OursFor(word, ForeignKeys()), ours) << word;
  EXPECT_STREQ(FindForeign("lora_r", ForeignKeys())->advice, "trainctl has no LoRA: it trains all weights");
}

TEST(ForeignWords, AnOptionLeadsToOurKeyOfThatName) {
  const std::map<std::string, std::string> keys = {
      {"--lr", "optimizer.lr"},
      {"--optimizer.lr", "optimizer.lr"},
      {"--epochs", "train.epochs"},
      {"--seed", "run.seed"},
      {"--name", "run.name"},
      {"--nodes", "cluster.nodes"},
      {"--max-restarts", "launch.max_restarts"},
      {"--text-field", "data.train[0].text_field"},
      {"--training.steps", "train.steps"},
      {"--training.local_batch_size", "train.micro_batch"},
      {"--checkpoint.interval", "checkpoint.every_steps"},
      {"--val-set-size", "data.eval[0].holdout"},
      {"--lora-r", ""},
      {"--rdzv-backend", ""},
      {"--include", ""},
  };
  for (const auto& [option, key] : keys) EXPECT_EQ(KeyOfOption(option), key) << option;
}

TEST(ForeignWords, AreFoundAsPeopleWriteThem) {
  EXPECT_EQ(OursFor("--nproc-per-node", ForeignKeys()), "cluster.devices_per_node");
  EXPECT_EQ(OursFor("Learning_Rate", ForeignKeys()), "optimizer.lr");
  EXPECT_EQ(OursFor("fine-tune", ForeignVerbs()), "launch");
  EXPECT_EQ(OursFor("stepz", ForeignKeys()), "");
}

}  // namespace
}  // namespace trainctl::recipe
