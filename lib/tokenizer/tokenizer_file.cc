#include "tokenizer/tokenizer_file.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/strict_json.h"

namespace trainctl::tokenizer {
namespace {

// Hands everything to the builder of a tree, but keeps what stands in model.vocab and model.merges.
class FileReader : public nlohmann::json_sax<Json> {
 public:
  FileReader(absl::string_view text, absl::string_view what) : what_(what), rest_(text, what, kMaxDepth) {}

  bool null() override { return place_ == Place::kRest ? rest_.null() : Refuse(); }
  bool boolean(bool value) override { return place_ == Place::kRest ? rest_.boolean(value) : Refuse(); }
  bool number_integer(number_integer_t value) override {
    return place_ == Place::kRest ? rest_.number_integer(value) : Refuse();
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (place_ == Place::kRest) return rest_.number_unsigned(value);
    if (place_ != Place::kVocab) return Refuse();
    file_.vocab.back().second = static_cast<int64_t>(std::min<uint64_t>(value, INT64_MAX));
    return true;
  }
  bool number_float(number_float_t value, const std::string& digits) override {
    return place_ == Place::kRest ? rest_.number_float(value, digits) : Refuse();
  }
  bool string(std::string& value) override {
    if (place_ == Place::kRest) return rest_.string(value);
    if (place_ == Place::kMerges) return AddMerge(value);
    if (place_ != Place::kMerge || num_parts_ == 2) return Refuse();
    (num_parts_ == 0 ? file_.merges.back().first : file_.merges.back().second) = std::move(value);
    ++num_parts_;
    return true;
  }
  bool binary(Json::binary_t& value) override { return rest_.binary(value); }

  bool start_object(size_t num) override {
    if (place_ != Place::kRest) return Refuse();
    ++depth_;
    if (is_vocab_ && depth_ == 3) place_ = Place::kVocab;
    return rest_.start_object(num);
  }
  bool end_object() override {
    --depth_;
    place_ = Place::kRest;
    return rest_.end_object();
  }
  bool key(std::string& key) override {
    if (place_ == Place::kVocab) {
      file_.vocab.emplace_back(std::move(key), -1);
      return true;
    }
    if (depth_ == 1) is_model_ = key == "model";
    is_vocab_ = depth_ == 2 && is_model_ && key == "vocab";
    is_merges_ = depth_ == 2 && is_model_ && key == "merges";
    return rest_.key(key);
  }
  bool start_array(size_t num) override {
    if (place_ == Place::kMerges) {
      place_ = Place::kMerge;
      num_parts_ = 0;
      file_.merges.emplace_back();
      ++num_entries_;
      return true;
    }
    if (place_ != Place::kRest) return Refuse();
    ++depth_;
    if (is_merges_ && depth_ == 3) place_ = Place::kMerges;
    return rest_.start_array(num);
  }
  bool end_array() override {
    if (place_ == Place::kMerge) {
      if (num_parts_ != 2) return Refuse();
      place_ = Place::kMerges;
      return true;
    }
    --depth_;
    place_ = Place::kRest;
    return rest_.end_array();
  }
  bool parse_error(size_t position, const std::string& token,
                   const nlohmann::detail::exception& error) override {
    return rest_.parse_error(position, token, error);
  }

  TokenizerFile Take() {
    file_.rest = rest_.Take();
    return std::move(file_);
  }
  absl::Status status() const { return status_.ok() ? rest_.status() : status_; }

 private:
  static constexpr int kMaxDepth = 64;
  enum class Place { kRest, kVocab, kMerges, kMerge };  // kMerge: within ["a", "b"]

  bool Fail(absl::string_view problem) {
    status_ = BadDataError(absl::StrCat(what_, ": ", problem));
    return false;
  }
  // A value that may not stand here.
  bool Refuse() {
    if (place_ == Place::kVocab) {
      return Fail(
          absl::StrCat("model.vocab['", file_.vocab.back().first, "'] must be a whole number of at least 0"));
    }
    const size_t entry = place_ == Place::kMerge ? num_entries_ - 1 : num_entries_;
    return Fail(absl::StrCat("model.merges[", entry, "] must be \"a b\" or [\"a\", \"b\"]"));
  }
  bool AddMerge(const std::string& text) {
    const size_t entry = num_entries_++;
    if (absl::StartsWith(text, "#version")) return true;
    const size_t space = text.find(' ');
    if (space == 0 || space == std::string::npos || space + 1 == text.size() ||
        text.find(' ', space + 1) != std::string::npos) {
      return Fail(absl::StrCat("model.merges[", entry, "] = '", text,
                               "' is not two tokens with one space between them"));
    }
    file_.merges.emplace_back(text.substr(0, space), text.substr(space + 1));
    return true;
  }

  absl::string_view what_;
  StrictJsonBuilder rest_;
  TokenizerFile file_;
  absl::Status status_;
  Place place_ = Place::kRest;
  int depth_ = 0;           // of open objects and lists of `rest_`
  bool is_model_ = false;   // the last key of the outermost object
  bool is_vocab_ = false;   // the last key is that of model.vocab
  bool is_merges_ = false;  // or of model.merges
  int num_parts_ = 0;       // of the merge that is open
  size_t num_entries_ = 0;  // of the list of merges
};

}  // namespace

absl::StatusOr<TokenizerFile> ParseTokenizerFile(absl::string_view text, absl::string_view what) {
  FileReader reader(text, what);
  if (SendJsonEvents(text, reader)) return reader.Take();
  return reader.status();
}

}  // namespace trainctl::tokenizer
