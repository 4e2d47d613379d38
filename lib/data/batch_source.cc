#include "data/batch_source.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/counter_rng.h"
#include "base/files.h"
#include "base/status.h"
#include "base/units.h"
#include "data/counted_targets.h"
#include "data/document_set.h"
#include "data/document_store.h"
#include "data/kept_documents.h"
#include "data/mixture.h"
#include "data/prepared_tokenizer.h"
#include "data/sequences.h"
#include "data/text_markers.h"
#include "data/unused_prompts.h"
#include "data/whole_sequences.h"

namespace trainctl::data {
namespace {

constexpr int64_t kMaxPosition = int64_t{1} << 62;  // of a stream; in tokens

struct Shape {
  int64_t batch_sequences = 0;
  int64_t seq_len = 0;
};

absl::Status CheckRange(const Shape& shape, int64_t step, SequenceRange which) {
  if (step < 0) return UsageError(absl::StrCat("step ", step, " is negative"));
  if (step >= kMaxPosition / shape.batch_sequences / shape.seq_len - 1) {
    return UsageError(absl::StrCat("step ", step, " exceeds the limit of a run"));
  }
  if (which.first < 0 || which.count < 0 || which.first > shape.batch_sequences - which.count) {
    return UsageError(absl::StrCat("sequences ", which.first, " + ", which.count,
                                   " are outside the batch of ", shape.batch_sequences));
  }
  return absl::OkStatus();
}

// Sequence n is sequence k of the source that the mixture names; from `end` on, all are padding.
class MixedSource : public BatchSource {
 public:
  MixedSource(std::vector<std::unique_ptr<Sequences>> sources, Mixture mixture, Shape shape, int64_t end)
      : sources_(std::move(sources)), mixture_(std::move(mixture)), shape_(shape), end_(end) {}

  absl::StatusOr<Batch> Get(int64_t step, SequenceRange which) const override {
    TRAINCTL_RETURN_IF_ERROR(CheckRange(shape_, step, which));
    Batch batch = PaddingBatch(which.count, shape_.seq_len);
    std::vector<bool> checked(sources_.size(), false);
    for (int64_t row = 0; row < which.count; ++row) {
      const int64_t number = step * shape_.batch_sequences + which.first + row;
      if (number >= end_) break;
      const Mixture::Draw draw = mixture_.At(number);
      const size_t index = static_cast<size_t>(draw.source);
      if (!checked[index]) TRAINCTL_RETURN_IF_ERROR(sources_[index]->CheckUnchanged());
      checked[index] = true;
      TRAINCTL_RETURN_IF_ERROR(sources_[index]->Fill(draw.index, row, batch));
    }
    return batch;
  }

 private:
  std::vector<std::unique_ptr<Sequences>> sources_;
  Mixture mixture_;
  Shape shape_;
  int64_t end_;
};

absl::StatusOr<Shape> CheckedShape(const recipe::Recipe& recipe) {
  Shape shape;
  shape.batch_sequences = recipe.train.batch_sequences;
  shape.seq_len = recipe.data.seq_len;
  constexpr int64_t kMax = int64_t{1} << 31;
  if (shape.batch_sequences < 1 || shape.batch_sequences >= kMax) {
    return UsageError(
        absl::StrCat("train.batch_sequences = ", shape.batch_sequences, " must be from 1 to 2^31-1"));
  }
  if (shape.seq_len < 1 || shape.seq_len >= kMax) {
    return UsageError(absl::StrCat("data.seq_len = ", shape.seq_len, " must be from 1 to 2^31-1"));
  }
  if (recipe.model.spec.vocab < 1 || recipe.model.spec.vocab > kMax) {
    return UsageError(absl::StrCat("model.vocab = ", recipe.model.spec.vocab, " must be from 1 to 2^31"));
  }
  return shape;
}

std::string NameOf(const recipe::DataSource& source, absl::string_view table, size_t index) {
  return source.name.empty() ? absl::StrCat("data.", table, "[", index, "]") : source.name;
}

// The share that each training source holds out: its own, or that of a [[data.eval]] with `holdout`.
double HoldoutOf(const recipe::DataConfig& data, const recipe::DataSource& source) {
  double holdout = source.holdout;
  if (holdout != 0) return holdout;
  for (const recipe::DataSource& set : data.eval) holdout = std::max(holdout, set.holdout);
  return holdout;
}

// Null for bytes. Also holds prepared data against the tokenizer and the model.
absl::StatusOr<std::unique_ptr<tokenizer::Tokenizer>> LoadTokenizer(const recipe::Recipe& recipe) {
  TRAINCTL_RETURN_IF_ERROR(CheckPreparedVocab(recipe.data, recipe.model.spec.vocab));
  if (recipe.data.tokenizer == "byte") return nullptr;
  TRAINCTL_ASSIGN_OR_RETURN(auto tokenizer, tokenizer::Tokenizer::Load(recipe.data.tokenizer));
  if (recipe.data.end_of_document != "auto") {
    TRAINCTL_RETURN_IF_ERROR(
        Annotate(tokenizer->SetEndOfDocument(recipe.data.end_of_document), "data.end_of_document"));
  }
  TRAINCTL_RETURN_IF_ERROR(CheckPreparedTokenizer(recipe.data));
  if (tokenizer->vocab_size() > recipe.model.spec.vocab) {
    return UsageError(absl::StrCat("data.tokenizer = '", recipe.data.tokenizer, "' has IDs up to ",
                                   tokenizer->vocab_size() - 1, ", but model.vocab is ",
                                   recipe.model.spec.vocab, "; set model.vocab = ", tokenizer->vocab_size(),
                                   " or more"));
  }
  return tokenizer;
}

absl::StatusOr<std::vector<int64_t>> MixWeights(const recipe::DataConfig& data,
                                                const std::vector<std::unique_ptr<Sequences>>& sources) {
  std::vector<double> shares;
  double sum = 0;
  for (const recipe::DataSource& source : data.train) {
    if (!source.weight.has_value()) continue;
    if (!std::isfinite(*source.weight) || *source.weight < 0) {
      return UsageError(absl::StrCat("data.train weight = ", *source.weight, " must be a positive number"));
    }
    shares.push_back(*source.weight);
    sum += *source.weight;
  }
  if (shares.empty()) {
    std::vector<int64_t> by_size;
    for (const auto& source : sources) by_size.push_back(source->EpochTokens());
    return by_size;
  }
  if (shares.size() != data.train.size()) {
    return UsageError(absl::StrCat("data.train: ", shares.size(), " of ", data.train.size(),
                                   " sources have a weight; set it for all or none"));
  }
  if (!(sum > 0) || !std::isfinite(sum)) return UsageError("data.train: the sum of the weights is zero");
  return IntegerWeights(shares);
}

// An evaluation set that reads each sequence of `parts` once, taking from the parts evenly.
EvalSet MakeEvalSet(std::string name, std::vector<std::unique_ptr<Sequences>> parts, const Shape& shape,
                    int64_t eval_batches) {
  std::vector<int64_t> counts;
  int64_t total = 0;
  for (const auto& part : parts) {
    counts.push_back(part->EpochSequences());
    total += counts.back();
  }
  const int64_t num_batches = (total + shape.batch_sequences - 1) / shape.batch_sequences;
  return {.name = std::move(name),
          .source = std::make_unique<MixedSource>(std::move(parts), Mixture(counts), shape, total),
          .num_batches = std::min(std::max<int64_t>(eval_batches, 1), num_batches),
          .placement = std::nullopt};
}

// The files of one kind. Files whose kind is unknown are left out.
std::vector<std::string> FilesOfKind(const recipe::DataConfig& data, SourceKind wanted) {
  std::vector<std::string> files;
  for (const std::vector<recipe::DataSource>* sources : {&data.train, &data.eval}) {
    for (const recipe::DataSource& source : *sources) {
      for (const std::string& file : source.files) {
        const absl::StatusOr<SourceKind> kind = KindOfFile(source, file);
        if (kind.ok() && *kind == wanted) files.push_back(file);
      }
    }
  }
  return files;
}

// Bytes of the files of indexed datasets that have this `extension`. A file whose size is unknown counts
// as 0.
int64_t BytesOfIndexed(const recipe::DataConfig& data, absl::string_view extension) {
  std::set<std::string> prefixes;
  for (const std::string& file : FilesOfKind(data, SourceKind::kIndexed))
    prefixes.insert(IndexedPrefix(file));
  int64_t bytes = 0;
  for (const std::string& prefix : prefixes) bytes += FileBytes(absl::StrCat(prefix, extension)).value_or(0);
  return bytes;
}

// The sources of a recipe, each opened once at most, whoever asks for its documents.
class Opener {
 public:
  static absl::StatusOr<Opener> Make(const recipe::Recipe& recipe, OpenOptions options = {}) {
    Opener opener(recipe);
    TRAINCTL_ASSIGN_OR_RETURN(opener.shape_, CheckedShape(recipe));
    TRAINCTL_ASSIGN_OR_RETURN(opener.tokenizer_, LoadTokenizer(recipe));
    opener.options_ = std::move(options);
    return opener;
  }

  // Once: the documents go with it.
  absl::StatusOr<std::unique_ptr<BatchSource>> Train() {
    if (recipe_.data.train.empty()) return UsageError("data.train: no sources");
    std::vector<std::unique_ptr<Sequences>> sources;
    for (size_t i = 0; i < recipe_.data.train.size(); ++i) {
      TRAINCTL_ASSIGN_OR_RETURN(Split * split, SplitOf(i));
      const recipe::DataSource& source = recipe_.data.train[i];
      TRAINCTL_ASSIGN_OR_RETURN(const Packing packing, PackingOf(recipe_.data, source));
      TRAINCTL_ASSIGN_OR_RETURN(const bool is_idle, IsIdle(split->train, packing));
      if (is_idle) idle_sources_.push_back(NameOf(source, "train", i));
      ShuffleKey key{recipe_.data.shuffle, recipe_.run.seed, absl::StrCat("data.train[", i, "]")};
      TRAINCTL_ASSIGN_OR_RETURN(auto sequences, Place(std::move(split->train), std::move(key), packing,
                                                      Repeat::kEndless, NameOf(source, "train", i)));
      sources.push_back(std::move(sequences));
    }
    TRAINCTL_ASSIGN_OR_RETURN(const std::vector<int64_t> weights, MixWeights(recipe_.data, sources));
    FindUses(sources, weights);
    return std::make_unique<MixedSource>(std::move(sources), Mixture(weights), shape_, INT64_MAX);
  }

  std::vector<SourceUse> TakeUses() { return std::move(uses_); }
  std::vector<Placement> TakePlacements() { return std::move(placements_); }
  std::vector<std::string> TakeLeftOut() { return std::move(left_out_); }
  std::vector<std::string> TakeIdleSources() { return std::move(idle_sources_); }
  std::vector<std::string> TakeIdleSets() { return std::move(idle_sets_); }
  std::string EndOfDocument() const {
    return tokenizer_ == nullptr ? "" : std::string(tokenizer_->TokenOf(tokenizer_->end_of_document_id()));
  }
  // A sentence about texts that already contain the tokenizer's prefix. Empty if none does.
  std::string OwnStarts() const {
    std::vector<std::string> parts;
    if (counts_.own_starts > 0) {
      std::string start;
      for (const int32_t id : tokenizer_->prefix_ids()) absl::StrAppend(&start, tokenizer_->TokenOf(id));
      parts.push_back(absl::StrCat(counts_.own_starts,
                                   counts_.own_starts == 1 ? " document begins" : " documents begin",
                                   " with ", start, ", which the tokenizer also adds before a text; ",
                                   counts_.repeated_starts == 0 ? "each document gets it only once"
                                                                : "it is not added to them again"));
    }
    if (counts_.repeated_starts > 0) {
      parts.push_back(absl::StrCat(
          counts_.repeated_starts, counts_.repeated_starts == 1 ? " document has " : " documents have ",
          tokenizer_->TokenOf(tokenizer_->prefix_ids().back()),
          " more than once at the beginning; remove it from the text, because the tokenizer adds it"));
    }
    return absl::StrJoin(parts, "; ");
  }
  // A sentence about prompts that the tokenizer encodes differently without the text. Empty if there are
  // none.
  std::string ChangedPrompts() const {
    if (counts_.changed_prompts == 0) return "";
    return absl::StrCat("in ", counts_.changed_prompts, " of ", counts_.documents,
                        " documents a token spans the end of the prompt and the beginning of the text, so "
                        "the model never sees these prompts as `generate` tokenizes them; if they end with "
                        "a space, move it to the beginning of the text");
  }

  absl::StatusOr<std::vector<EvalSet>> Eval() {
    std::vector<EvalSet> sets;
    bool held_out_is_named = false;
    for (size_t i = 0; i < recipe_.data.eval.size(); ++i) {
      const recipe::DataSource& source = recipe_.data.eval[i];
      const std::string name = NameOf(source, "eval", i);
      if (source.weight.has_value()) {
        return UsageError(absl::StrCat("evaluation set ", name, ": weight applies only to data.train"));
      }
      if (source.holdout == 0) {
        TRAINCTL_ASSIGN_OR_RETURN(const Packing packing, PackingOf(recipe_.data, source));
        TRAINCTL_ASSIGN_OR_RETURN(DocumentSet documents, EvalFiles(source, name));
        std::map<Packing, DocumentSet> by_packing;
        by_packing.emplace(packing, std::move(documents));
        TRAINCTL_RETURN_IF_ERROR(Add(std::move(by_packing), name, sets));
        continue;
      }
      if (!source.files.empty() || held_out_is_named) {
        return UsageError(
            absl::StrCat("evaluation set ", name, ": ",
                         held_out_is_named ? "only one set can use holdout" : "set either files or holdout"));
      }
      held_out_is_named = true;
      TRAINCTL_RETURN_IF_ERROR(Add(HeldOut(name), name, sets));
    }
    const auto holds_out = [](const recipe::DataSource& source) { return source.holdout != 0; };
    if (!held_out_is_named && std::any_of(recipe_.data.train.begin(), recipe_.data.train.end(), holds_out)) {
      TRAINCTL_RETURN_IF_ERROR(Add(HeldOut("held-out"), "held-out", sets));
    }
    return sets;
  }

 private:
  explicit Opener(const recipe::Recipe& recipe) : recipe_(recipe), splits_(recipe.data.train.size()) {}

  void FindUses(const std::vector<std::unique_ptr<Sequences>>& sources, const std::vector<int64_t>& weights) {
    double sum = 0;
    for (const int64_t weight : weights) sum += static_cast<double>(weight);
    const auto step_tokens = static_cast<double>(shape_.batch_sequences * shape_.seq_len);
    for (size_t i = 0; i < sources.size(); ++i) {
      const int64_t tokens = sources[i]->EpochTokens();
      const double share = static_cast<double>(weights[i]) / sum;
      uses_.push_back({.source = NameOf(recipe_.data.train[i], "train", i),
                       .epoch_tokens = tokens,
                       .epochs_per_step = step_tokens * share / static_cast<double>(tokens)});
    }
  }

  absl::StatusOr<std::shared_ptr<const DocumentStore>> Open(const recipe::DataSource& source,
                                                            const std::string& name) {
    HowToRead how = {.tokenizer = tokenizer_.get(), .kept = options_.kept};
    if (tokenizer_ != nullptr) {
      TRAINCTL_ASSIGN_OR_RETURN(how.tokenizer_file, tokenizer::Tokenizer::FindFile(recipe_.data.tokenizer));
    }
    how.counts = &counts_;
    how.check_tokens = options_.check_tokens;
    how.bytes_read = [this](int64_t bytes) {
      if (!options_.progress) return;
      done_bytes_ += bytes;
      options_.progress(done_bytes_, std::max(done_bytes_, TotalBytes()));
    };
    how.skip_bad_lines = recipe_.data.on_bad_line == "skip";
    LeftOutLines left_out;
    how.left_out = &left_out;
    TRAINCTL_ASSIGN_OR_RETURN(auto store, OpenDocuments(source, recipe_.model.spec.vocab, how));
    if (left_out.count > 0) {
      if (store->num_documents() == 0) {
        return BadDataError(
            absl::StrCat("data source ", name, " has no valid line: ", FormatLeftOut(left_out)));
      }
      left_out_.push_back(absl::StrCat(name, ": ", FormatLeftOut(left_out)));
    }
    return store;
  }

  int64_t TotalBytes() {
    if (total_bytes_ >= 0) return total_bytes_;
    total_bytes_ = BytesReadAtOpening(recipe_.data);
    if (options_.check_tokens) total_bytes_ += BytesOfIndexed(recipe_.data, ".bin");
    return total_bytes_;
  }

  // The same for training and evaluation: it depends on the seed, the source's place and its documents.
  absl::StatusOr<Split*> SplitOf(size_t index) {
    std::optional<Split>& split = splits_[index];
    if (split.has_value()) return &*split;
    const recipe::DataSource& source = recipe_.data.train[index];
    const std::string name = NameOf(source, "train", index);
    if (source.files.empty()) return UsageError(absl::StrCat("data source ", name, " has no files"));
    TRAINCTL_ASSIGN_OR_RETURN(auto store, Open(source, name));
    TRAINCTL_ASSIGN_OR_RETURN(
        split, SplitDocuments(std::move(store), HoldoutOf(recipe_.data, source), recipe_.run.seed,
                              StreamOf(absl::StrCat("data.train[", index, "]/holdout")), name));
    return &*split;
  }

  absl::StatusOr<DocumentSet> EvalFiles(const recipe::DataSource& source, const std::string& name) {
    if (source.files.empty()) return UsageError(absl::StrCat("evaluation set ", name, " has no files"));
    TRAINCTL_ASSIGN_OR_RETURN(auto store, Open(source, name));
    TRAINCTL_ASSIGN_OR_RETURN(Split split, SplitDocuments(std::move(store), 0.0, recipe_.run.seed, 0, name));
    return std::move(split.train);
  }

  // The documents that training sources hold out, one set for each packing.
  absl::StatusOr<std::map<Packing, DocumentSet>> HeldOut(const std::string& name) {
    std::map<Packing, std::vector<DocumentSet>> held_out;
    for (size_t i = 0; i < recipe_.data.train.size(); ++i) {
      const recipe::DataSource& source = recipe_.data.train[i];
      if (HoldoutOf(recipe_.data, source) == 0) continue;
      TRAINCTL_ASSIGN_OR_RETURN(const Packing packing, PackingOf(recipe_.data, source));
      TRAINCTL_ASSIGN_OR_RETURN(Split * split, SplitOf(i));
      held_out[packing].push_back(std::move(split->held_out));
    }
    if (held_out.empty())
      return UsageError(absl::StrCat("evaluation set ", name, ": holdout requires a training source"));
    std::map<Packing, DocumentSet> by_packing;
    for (auto& [packing, sets] : held_out) {
      if (sets.size() == 1) {
        by_packing.emplace(packing, std::move(sets.front()));
        continue;
      }
      TRAINCTL_ASSIGN_OR_RETURN(Split all, SplitDocuments(Interleave(std::move(sets)), 0.0, 0, 0, name));
      by_packing.emplace(packing, std::move(all.train));
    }
    return by_packing;
  }

  absl::Status Add(absl::StatusOr<std::map<Packing, DocumentSet>> by_packing, const std::string& name,
                   std::vector<EvalSet>& sets) {
    TRAINCTL_RETURN_IF_ERROR(by_packing.status());
    std::vector<std::unique_ptr<Sequences>> parts;
    std::optional<Placement> placement;
    bool is_idle = true;
    for (auto& [packing, documents] : *by_packing) {
      if (documents.num_tokens() < 2) {
        return BadDataError(absl::StrCat("evaluation set ", name, " has ", documents.num_tokens(),
                                         " token, so there is nothing to predict"));
      }
      TRAINCTL_ASSIGN_OR_RETURN(const bool part_is_idle, IsIdle(documents, packing));
      is_idle = is_idle && part_is_idle;
      TRAINCTL_ASSIGN_OR_RETURN(auto part, Place(std::move(documents), ShuffleKey{.stream = name}, packing,
                                                 Repeat::kOnce, absl::StrCat("evaluation set ", name)));
      parts.push_back(std::move(part));
      if (packing == Packing::kWhole) placement = placements_.back();
    }
    if (is_idle) idle_sets_.push_back(name);
    sets.push_back(MakeEvalSet(name, std::move(parts), shape_, recipe_.train.eval_batches));
    sets.back().placement = std::move(placement);
    return absl::OkStatus();
  }

  // Whether no target counts toward the loss, as far as that is asked for.
  absl::StatusOr<bool> IsIdle(const DocumentSet& documents, Packing packing) const {
    if (!options_.check_targets) return false;
    TRAINCTL_ASSIGN_OR_RETURN(const bool has_target, HasCountedTarget(documents, packing, shape_.seq_len,
                                                                      recipe_.data.long_documents == "cut"));
    return !has_target;
  }

  absl::StatusOr<std::unique_ptr<Sequences>> Place(DocumentSet documents, ShuffleKey key, Packing packing,
                                                   Repeat repeat, const std::string& name) {
    if (packing != Packing::kWhole) {
      return StreamSequences(std::move(documents), std::move(key), shape_.seq_len, packing, repeat);
    }
    const bool cuts = recipe_.data.long_documents == "cut";
    int64_t cut_to_prompt = 0;
    if (options_.check_targets && cuts) {
      TRAINCTL_ASSIGN_OR_RETURN(cut_to_prompt, CountCutToPrompts(documents, shape_.seq_len));
    }
    TRAINCTL_ASSIGN_OR_RETURN(
        std::unique_ptr<WholeSequences> whole,
        WholeSequences::Make(std::move(documents), std::move(key), shape_.seq_len, cuts, name));
    placements_.push_back({.source = name,
                           .documents = whole->num_documents(),
                           .longer = whole->num_longer(),
                           .cut_to_prompt = cut_to_prompt,
                           .used_share = whole->UsedShare()});
    return whole;
  }

  const recipe::Recipe& recipe_;
  Shape shape_;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
  std::vector<std::optional<Split>> splits_;
  OpenOptions options_;
  std::vector<SourceUse> uses_;
  std::vector<Placement> placements_;
  std::vector<std::string> left_out_;
  std::vector<std::string> idle_sources_, idle_sets_;
  TokenizedCounts counts_;
  int64_t done_bytes_ = 0;
  int64_t total_bytes_ = -1;  // not asked yet
};

}  // namespace

int64_t BytesReadAtOpening(const recipe::DataConfig& data) {
  int64_t bytes = 0;
  for (const std::vector<recipe::DataSource>* sources : {&data.train, &data.eval}) {
    for (const recipe::DataSource& source : *sources) {
      bytes += BytesReadAtOpening(source, data.tokenizer != "byte");
    }
  }
  return bytes;
}

bool MayKeepDocuments(const recipe::DataConfig& data) {
  return BytesReadAtOpening(data) >= KeptDocuments::kMinBytes ||
         !FilesOfKind(data, SourceKind::kParquet).empty();
}

std::string FormatUses(const std::vector<SourceUse>& uses, int64_t steps) {
  const auto epochs = [steps](const SourceUse& use) {
    const double epochs = use.epochs_per_step * static_cast<double>(steps);
    return absl::StrFormat("%.*f epochs", epochs < 10 ? 2 : 0, epochs);
  };
  if (uses.size() == 1) {
    return absl::StrCat("the data contains ", FormatCount(uses[0].epoch_tokens), " tokens; the run covers ",
                        epochs(uses[0]));
  }
  const auto each = [&](std::string* out, const SourceUse& use) {
    absl::StrAppend(out, use.source, " has ", FormatCount(use.epoch_tokens), " tokens, ", epochs(use));
  };
  return absl::StrCat("the run covers: ", absl::StrJoin(uses, "; ", each));
}

std::string FormatPlacement(const Placement& placement, const recipe::DataConfig& data) {
  const char* const fate = data.long_documents == "cut" ? "truncated" : "skipped";
  const std::string longer =
      placement.longer == 0 ? absl::StrCat("none is longer than ", data.seq_len, " tokens")
                            : absl::StrCat(placement.longer, " longer than ", data.seq_len, " tokens ", fate);
  const std::string to_prompt =
      placement.cut_to_prompt == 0
          ? ""
          : absl::StrCat(", ", placement.cut_to_prompt, " of them before the completion begins");
  return absl::StrFormat("%s: %s packed whole; %s%s; %.1f %% of each sequence is used", placement.source,
                         FormatNumberOf(placement.documents - placement.longer, "document"), longer,
                         to_prompt, 100 * placement.used_share);
}

absl::StatusOr<DataSets> OpenData(const recipe::Recipe& recipe, OpenOptions options) {
  TRAINCTL_ASSIGN_OR_RETURN(Opener opener, Opener::Make(recipe, std::move(options)));
  DataSets sets;
  TRAINCTL_ASSIGN_OR_RETURN(sets.train, opener.Train());
  TRAINCTL_ASSIGN_OR_RETURN(sets.eval, opener.Eval());
  sets.uses = opener.TakeUses();
  sets.placements = opener.TakePlacements();
  sets.end_of_document = opener.EndOfDocument();
  sets.own_starts = opener.OwnStarts();
  sets.changed_prompts = opener.ChangedPrompts();
  sets.left_out = opener.TakeLeftOut();
  sets.idle_sources = opener.TakeIdleSources();
  sets.idle_sets = opener.TakeIdleSets();
  return sets;
}

absl::StatusOr<std::unique_ptr<BatchSource>> OpenTrainSource(const recipe::Recipe& recipe) {
  TRAINCTL_ASSIGN_OR_RETURN(Opener opener, Opener::Make(recipe));
  return opener.Train();
}

absl::StatusOr<int64_t> CountEpochTokens(const recipe::Recipe& recipe, OpenOptions options) {
  TRAINCTL_ASSIGN_OR_RETURN(Opener opener, Opener::Make(recipe, std::move(options)));
  TRAINCTL_RETURN_IF_ERROR(opener.Train().status());
  int64_t tokens = 0;
  for (const SourceUse& use : opener.TakeUses()) tokens += use.epoch_tokens;
  return tokens;
}

std::vector<SourceUse> FindUsesQuickly(const recipe::Recipe& recipe) {
  constexpr int64_t kMostIndexBytes = int64_t{64} << 20;
  recipe::DataConfig train = recipe.data;
  train.eval.clear();
  if (BytesReadAtOpening(train) >= KeptDocuments::kMinBytes ||
      BytesOfIndexed(train, ".idx") > kMostIndexBytes)
    return {};
  absl::StatusOr<Opener> opener = Opener::Make(recipe);
  if (!opener.ok() || !opener->Train().ok()) return {};
  return opener->TakeUses();
}

absl::StatusOr<std::vector<EvalSet>> OpenEvalSets(const recipe::Recipe& recipe) {
  TRAINCTL_ASSIGN_OR_RETURN(Opener opener, Opener::Make(recipe));
  return opener.Eval();
}

namespace {

// Whether loading the recipe has reported a file: it is missing, such as a pattern that matches nothing, or
// it is a folder.
bool LacksAFile(const recipe::DataSource& source) {
  return std::any_of(source.files.begin(), source.files.end(), [](const std::string& file) {
    std::error_code ignored;
    const std::filesystem::file_type type = std::filesystem::status(file, ignored).type();
    return type == std::filesystem::file_type::not_found || type == std::filesystem::file_type::directory;
  });
}

// A sentence about the first JSONL source that has prompts but does not read them. Empty if there is none.
std::string FirstUnusedPrompt(const std::vector<recipe::DataSource>& sources) {
  for (const recipe::DataSource& source : sources) {
    if (!source.prompt_field.empty() || source.files.empty()) continue;
    const absl::StatusOr<SourceKind> kind = KindOfFile(source, source.files[0]);
    if (!kind.ok() || *kind != SourceKind::kJsonl) continue;
    const std::string name = FindUnusedPrompt(source.files[0], source.text_field);
    if (name.empty()) continue;
    return absl::StrCat("the field '", name, "' of ", source.files[0], " is not read, so the model learns '",
                        source.text_field, "' without it; to train on the text given the prompt, set ",
                        "prompt_field = \"", name, "\"");
  }
  return "";
}

// Reports data without a target that counts toward the loss.
void AddIdleData(const DataSets& sets, DataReport& report) {
  if (!sets.idle_sources.empty() && sets.idle_sources.size() == sets.uses.size()) {
    report.problems.push_back(BadDataError(absl::StrCat(
        absl::StrJoin(sets.idle_sources, ", "), ": no target counts toward the loss: ", kNoTargetsCause,
        ". Add completions to the examples, or raise data.seq_len")));
  } else if (!sets.idle_sources.empty()) {
    report.notes.push_back(absl::StrCat("nothing is learned from ", absl::StrJoin(sets.idle_sources, ", "),
                                        ", because no target counts toward the loss: ", kNoTargetsCause));
  }
  for (const std::string& set : sets.idle_sets) {
    report.notes.push_back(
        absl::StrCat("evaluation set '", set,
                     "' will have no loss, because none of its targets count toward it: ", kNoTargetsCause));
  }
}

}  // namespace

DataReport CheckData(const recipe::Recipe& recipe, OpenOptions options) {
  DataReport report;
  options.check_targets = true;
  const absl::StatusOr<DataSets> sets = OpenData(recipe, std::move(options));
  if (sets.ok()) {
    report.notes.push_back(FormatUses(sets->uses, recipe.train.steps));
    report.uses = sets->uses;
    report.notes.insert(report.notes.end(), sets->left_out.begin(), sets->left_out.end());
    for (const Placement& placement : sets->placements) {
      report.notes.push_back(FormatPlacement(placement, recipe.data));
    }
    AddIdleData(*sets, report);
    const std::string markers = FormatTextMarkers(
        FindTextMarkers(FilesOfKind(recipe.data, SourceKind::kText), sets->end_of_document));
    if (!markers.empty()) report.notes.push_back(markers);
    for (const std::string& note :
         {sets->own_starts, sets->changed_prompts, FirstUnusedPrompt(recipe.data.train)}) {
      if (!note.empty()) report.notes.push_back(note);
    }
    report.end_of_document = sets->end_of_document;
    return report;
  }
  // One by one, to name them all.
  const absl::Status train = OpenTrainSource(recipe).status();
  const absl::Status eval = OpenEvalSets(recipe).status();
  std::vector<absl::Status>& problems = report.problems;
  const auto add = [&](const absl::Status& status) {
    if (!status.ok() && std::find(problems.begin(), problems.end(), status) == problems.end()) {
      problems.push_back(status);
    }
  };
  recipe::Recipe part = recipe;
  if (const absl::Status status = LoadTokenizer(recipe).status(); !status.ok()) {
    add(status);
    part.data.tokenizer = "byte";  // for what else is wrong
    part.data.end_of_document = "auto";
    part.model.spec.vocab = std::max<int64_t>(part.model.spec.vocab, 256);
  }
  bool lacks_files = recipe.data.train.empty();
  for (const recipe::DataSource& source : recipe.data.train) {
    lacks_files |= LacksAFile(source);
    if (LacksAFile(source)) continue;
    part.data.train = {source};
    part.data.train[0].weight.reset();
    add(OpenTrainSource(part).status());
  }
  part.data.train.clear();
  for (const recipe::DataSource& set : recipe.data.eval) {
    lacks_files |= LacksAFile(set);
    if (set.holdout > 0 || LacksAFile(set)) continue;
    part.data.eval = {set};
    add(OpenEvalSets(part).status());
  }
  // Of what none has by itself: shares of a mix, a holdout of too few documents.
  if (problems.empty() && !lacks_files) add(train);
  if (train.ok() && !lacks_files) add(eval);
  if (problems.empty() && !lacks_files) add(sets.status());  // a token, which only `options` looks at
  return report;
}

}  // namespace trainctl::data
