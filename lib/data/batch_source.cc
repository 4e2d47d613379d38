#include "data/batch_source.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/counter_rng.h"
#include "base/status.h"
#include "data/document_set.h"
#include "data/document_store.h"
#include "data/mixture.h"
#include "data/packing.h"
#include "data/prepared_tokenizer.h"
#include "data/token_stream.h"

namespace trainctl::data {
namespace {

constexpr int64_t kMaxPosition = int64_t{1} << 62;  // of a stream; in tokens

struct Shape {
  int64_t batch_sequences = 0;
  int64_t seq_len = 0;
  Packing packing = Packing::kDocuments;
};

absl::Status CheckRange(const Shape& shape, int64_t step, SequenceRange which) {
  if (step < 0) return UsageError(absl::StrCat("step ", step, " is negative"));
  if (step >= kMaxPosition / shape.batch_sequences / shape.seq_len - 1) {
    return UsageError(absl::StrCat("step ", step, " is beyond what a run can count"));
  }
  if (which.first < 0 || which.count < 0 || which.first > shape.batch_sequences - which.count) {
    return UsageError(absl::StrCat("sequences ", which.first, " + ", which.count,
                                   " are not within a batch of ", shape.batch_sequences));
  }
  return absl::OkStatus();
}

// The training mix. Sequence n of the run is sequence k of the source that the mixture names.
class MixedSource : public BatchSource {
 public:
  struct Source {
    std::unique_ptr<TokenStream> stream;
    std::string stream_name;
  };

  MixedSource(std::vector<Source> sources, Mixture mixture, Shape shape, bool shuffle, uint64_t seed)
      : sources_(std::move(sources)),
        mixture_(std::move(mixture)),
        shape_(shape),
        shuffle_(shuffle),
        seed_(seed) {}

  absl::StatusOr<Batch> Get(int64_t step, SequenceRange which) const override {
    TRAINCTL_RETURN_IF_ERROR(CheckRange(shape_, step, which));
    Batch batch = PaddingBatch(which.count, shape_.seq_len, shape_.packing);
    std::vector<bool> checked(sources_.size(), false);
    for (int64_t row = 0; row < which.count; ++row) {
      const Mixture::Draw draw = mixture_.At(step * shape_.batch_sequences + which.first + row);
      const size_t index = static_cast<size_t>(draw.source);
      const Source& source = sources_[index];
      if (!checked[index]) TRAINCTL_RETURN_IF_ERROR(source.stream->CheckUnchanged());
      checked[index] = true;
      const int64_t sequence = shuffle_ ? Shuffled(source, draw.index) : draw.index;
      TRAINCTL_RETURN_IF_ERROR(
          FillRow(*source.stream, sequence * shape_.seq_len, shape_.seq_len + 1, shape_.packing, row, batch));
    }
    return batch;
  }

 private:
  // Sequences of one epoch's length are dealt in a shuffled order, so that the pieces of one long document
  // do not fill a batch.
  int64_t Shuffled(const Source& source, int64_t sequence) const {
    const int64_t block_sequences = source.stream->epoch_tokens() / shape_.seq_len;
    if (block_sequences <= 1) return sequence;
    const int64_t block = sequence / block_sequences;
    const uint64_t stream = StreamOf(absl::StrCat(source.stream_name, "/sequences/", block));
    return block * block_sequences + static_cast<int64_t>(PermutedIndex(
                                         seed_, stream, static_cast<uint64_t>(sequence % block_sequences),
                                         static_cast<uint64_t>(block_sequences)));
  }

  std::vector<Source> sources_;
  Mixture mixture_;
  Shape shape_;
  bool shuffle_;
  uint64_t seed_;
};

// Evaluation: every token once, in order; rows behind the last token are padding.
class OrderedSource : public BatchSource {
 public:
  OrderedSource(std::unique_ptr<TokenStream> stream, Shape shape)
      : stream_(std::move(stream)), shape_(shape) {}

  int64_t num_batches() const {
    const int64_t num_targets = stream_->epoch_tokens() - 1;
    const int64_t batch_targets = shape_.batch_sequences * shape_.seq_len;
    return num_targets / batch_targets + (num_targets % batch_targets != 0 ? 1 : 0);
  }

  absl::StatusOr<Batch> Get(int64_t step, SequenceRange which) const override {
    TRAINCTL_RETURN_IF_ERROR(CheckRange(shape_, step, which));
    TRAINCTL_RETURN_IF_ERROR(stream_->CheckUnchanged());
    Batch batch = PaddingBatch(which.count, shape_.seq_len, shape_.packing);
    for (int64_t row = 0; row < which.count; ++row) {
      const int64_t position = (step * shape_.batch_sequences + which.first + row) * shape_.seq_len;
      const int64_t available = stream_->epoch_tokens() - position;
      if (available < 2) break;  // an input without a target
      TRAINCTL_RETURN_IF_ERROR(FillRow(*stream_, position, available, shape_.packing, row, batch));
    }
    return batch;
  }

 private:
  std::unique_ptr<TokenStream> stream_;
  Shape shape_;
};

absl::StatusOr<Shape> CheckedShape(const recipe::Recipe& recipe) {
  Shape shape;
  shape.batch_sequences = recipe.train.batch_sequences;
  shape.seq_len = recipe.data.seq_len;
  constexpr int64_t kMax = int64_t{1} << 31;
  if (shape.batch_sequences < 1 || shape.batch_sequences >= kMax) {
    return UsageError(
        absl::StrCat("train.batch_sequences = ", shape.batch_sequences, " is not within 1..2^31-1"));
  }
  if (shape.seq_len < 1 || shape.seq_len >= kMax) {
    return UsageError(absl::StrCat("data.seq_len = ", shape.seq_len, " is not within 1..2^31-1"));
  }
  if (recipe.model.spec.vocab < 1 || recipe.model.spec.vocab > kMax) {
    return UsageError(absl::StrCat("model.vocab = ", recipe.model.spec.vocab, " is not within 1..2^31"));
  }
  TRAINCTL_ASSIGN_OR_RETURN(shape.packing, ParsePacking(recipe.data.packing));
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
  TRAINCTL_RETURN_IF_ERROR(CheckPreparedTokenizer(recipe.data));
  if (tokenizer->vocab_size() > recipe.model.spec.vocab) {
    return UsageError(absl::StrCat("data.tokenizer = '", recipe.data.tokenizer, "' has ids up to ",
                                   tokenizer->vocab_size() - 1, ", but model.vocab is ",
                                   recipe.model.spec.vocab, "; set model.vocab = ", tokenizer->vocab_size(),
                                   " or more"));
  }
  return tokenizer;
}

absl::StatusOr<std::vector<int64_t>> MixWeights(const recipe::DataConfig& data,
                                                const std::vector<MixedSource::Source>& sources) {
  std::vector<double> shares;
  double sum = 0;
  for (const recipe::DataSource& source : data.train) {
    if (!source.weight.has_value()) continue;
    if (!std::isfinite(*source.weight) || *source.weight < 0) {
      return UsageError(absl::StrCat("data.train weight = ", *source.weight, " is not a share"));
    }
    shares.push_back(*source.weight);
    sum += *source.weight;
  }
  if (shares.empty()) {
    std::vector<int64_t> by_size;
    for (const auto& source : sources) by_size.push_back(source.stream->epoch_tokens());
    return by_size;
  }
  if (shares.size() != data.train.size()) {
    return UsageError(absl::StrCat("data.train: ", shares.size(), " of ", data.train.size(),
                                   " sources have a weight; give it for all or for none"));
  }
  if (!(sum > 0) || !std::isfinite(sum)) return UsageError("data.train: the weights sum to nothing");
  return IntegerWeights(shares);
}

absl::StatusOr<EvalSet> MakeEvalSet(std::string name, DocumentSet documents, const Shape& shape,
                                    int64_t eval_batches) {
  if (documents.num_tokens() < 2) {
    return BadDataError(absl::StrCat("evaluation set ", name, " has ", documents.num_tokens(),
                                     " token; there is nothing to predict"));
  }
  auto source = std::make_unique<OrderedSource>(
      std::make_unique<TokenStream>(std::move(documents), ShuffleKey{.stream = name}), shape);
  EvalSet set;
  set.name = std::move(name);
  set.num_batches = std::min(std::max<int64_t>(eval_batches, 1), source->num_batches());
  set.source = std::move(source);
  return set;
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
    if (recipe_.data.train.empty()) return UsageError("data.train: no source is given");
    std::vector<MixedSource::Source> sources;
    for (size_t i = 0; i < recipe_.data.train.size(); ++i) {
      TRAINCTL_ASSIGN_OR_RETURN(Split * split, SplitOf(i));
      MixedSource::Source source;
      source.stream_name = absl::StrCat("data.train[", i, "]");
      source.stream = std::make_unique<TokenStream>(
          std::move(split->train), ShuffleKey{recipe_.data.shuffle, recipe_.run.seed, source.stream_name});
      sources.push_back(std::move(source));
    }
    TRAINCTL_ASSIGN_OR_RETURN(const std::vector<int64_t> weights, MixWeights(recipe_.data, sources));
    return std::make_unique<MixedSource>(std::move(sources), Mixture(weights), shape_, recipe_.data.shuffle,
                                         recipe_.run.seed);
  }

  absl::StatusOr<std::vector<EvalSet>> Eval() {
    std::vector<EvalSet> sets;
    bool held_out_is_named = false;
    for (size_t i = 0; i < recipe_.data.eval.size(); ++i) {
      const recipe::DataSource& source = recipe_.data.eval[i];
      const std::string name = NameOf(source, "eval", i);
      if (source.weight.has_value()) {
        return UsageError(absl::StrCat("evaluation set ", name, ": weight is for data.train"));
      }
      if (source.holdout == 0) {
        TRAINCTL_RETURN_IF_ERROR(Add(EvalFiles(source, name), name, sets));
        continue;
      }
      if (!source.files.empty() || held_out_is_named) {
        return UsageError(absl::StrCat(
            "evaluation set ", name, ": ",
            held_out_is_named ? "only one set can be the held-out one" : "give either files or holdout"));
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

  absl::StatusOr<std::shared_ptr<const DocumentStore>> Open(const recipe::DataSource& source) {
    HowToRead how = {.tokenizer = tokenizer_.get(), .kept = options_.kept};
    if (tokenizer_ != nullptr) {
      TRAINCTL_ASSIGN_OR_RETURN(how.tokenizer_file, tokenizer::Tokenizer::FindFile(recipe_.data.tokenizer));
    }
    how.bytes_read = [this](int64_t bytes) {
      if (!options_.progress) return;
      done_bytes_ += bytes;
      options_.progress(done_bytes_, std::max(done_bytes_, TotalBytes()));
    };
    return OpenDocuments(source, recipe_.model.spec.vocab, how);
  }

  int64_t TotalBytes() {
    if (total_bytes_ < 0) total_bytes_ = BytesReadAtOpening(recipe_.data);
    return total_bytes_;
  }

  // The same for training and evaluation: it depends on the seed, the source's place and its documents.
  absl::StatusOr<Split*> SplitOf(size_t index) {
    std::optional<Split>& split = splits_[index];
    if (split.has_value()) return &*split;
    const recipe::DataSource& source = recipe_.data.train[index];
    const std::string name = NameOf(source, "train", index);
    if (source.files.empty()) return UsageError(absl::StrCat("data source ", name, " has no files"));
    TRAINCTL_ASSIGN_OR_RETURN(auto store, Open(source));
    TRAINCTL_ASSIGN_OR_RETURN(
        split, SplitDocuments(std::move(store), HoldoutOf(recipe_.data, source), recipe_.run.seed,
                              StreamOf(absl::StrCat("data.train[", index, "]/holdout")), name));
    return &*split;
  }

  absl::StatusOr<DocumentSet> EvalFiles(const recipe::DataSource& source, const std::string& name) {
    if (source.files.empty()) return UsageError(absl::StrCat("evaluation set ", name, " has no files"));
    TRAINCTL_ASSIGN_OR_RETURN(auto store, Open(source));
    TRAINCTL_ASSIGN_OR_RETURN(Split split, SplitDocuments(std::move(store), 0.0, recipe_.run.seed, 0, name));
    return std::move(split.train);
  }

  // What the training sources hold out, as one set.
  absl::StatusOr<DocumentSet> HeldOut(const std::string& name) {
    std::vector<DocumentSet> held_out;
    for (size_t i = 0; i < recipe_.data.train.size(); ++i) {
      if (HoldoutOf(recipe_.data, recipe_.data.train[i]) == 0) continue;
      TRAINCTL_ASSIGN_OR_RETURN(Split * split, SplitOf(i));
      held_out.push_back(std::move(split->held_out));
    }
    if (held_out.empty())
      return UsageError(absl::StrCat("evaluation set ", name, ": there is no training source"));
    if (held_out.size() == 1) return std::move(held_out.front());
    TRAINCTL_ASSIGN_OR_RETURN(Split all, SplitDocuments(Interleave(std::move(held_out)), 0.0, 0, 0, name));
    return std::move(all.train);
  }

  absl::Status Add(absl::StatusOr<DocumentSet> documents, const std::string& name,
                   std::vector<EvalSet>& sets) const {
    TRAINCTL_RETURN_IF_ERROR(documents.status());
    TRAINCTL_ASSIGN_OR_RETURN(EvalSet set,
                              MakeEvalSet(name, *std::move(documents), shape_, recipe_.train.eval_batches));
    sets.push_back(std::move(set));
    return absl::OkStatus();
  }

  const recipe::Recipe& recipe_;
  Shape shape_;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
  std::vector<std::optional<Split>> splits_;
  OpenOptions options_;
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

absl::StatusOr<DataSets> OpenData(const recipe::Recipe& recipe, OpenOptions options) {
  TRAINCTL_ASSIGN_OR_RETURN(Opener opener, Opener::Make(recipe, std::move(options)));
  DataSets sets;
  TRAINCTL_ASSIGN_OR_RETURN(sets.train, opener.Train());
  TRAINCTL_ASSIGN_OR_RETURN(sets.eval, opener.Eval());
  return sets;
}

absl::StatusOr<std::unique_ptr<BatchSource>> OpenTrainSource(const recipe::Recipe& recipe) {
  TRAINCTL_ASSIGN_OR_RETURN(Opener opener, Opener::Make(recipe));
  return opener.Train();
}

absl::StatusOr<std::vector<EvalSet>> OpenEvalSets(const recipe::Recipe& recipe) {
  TRAINCTL_ASSIGN_OR_RETURN(Opener opener, Opener::Make(recipe));
  return opener.Eval();
}

namespace {

// What a pattern of the recipe that matches nothing stands for.
bool LacksAFile(const recipe::DataSource& source) {
  return std::any_of(source.files.begin(), source.files.end(), [](const std::string& file) {
    std::error_code ignored;
    return std::filesystem::symlink_status(file, ignored).type() == std::filesystem::file_type::not_found;
  });
}

}  // namespace

std::vector<absl::Status> FindDataProblems(const recipe::Recipe& recipe, OpenOptions options) {
  if (OpenData(recipe, std::move(options)).ok()) return {};
  // One by one, to name them all.
  const absl::Status train = OpenTrainSource(recipe).status();
  const absl::Status eval = OpenEvalSets(recipe).status();
  std::vector<absl::Status> problems;
  const auto add = [&](const absl::Status& status) {
    if (!status.ok() && std::find(problems.begin(), problems.end(), status) == problems.end()) {
      problems.push_back(status);
    }
  };
  recipe::Recipe part = recipe;
  if (const absl::Status status = LoadTokenizer(recipe).status(); !status.ok()) {
    add(status);
    part.data.tokenizer = "byte";
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
  return problems;
}

}  // namespace trainctl::data
