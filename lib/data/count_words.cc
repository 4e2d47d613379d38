#include "data/count_words.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "base/status.h"
#include "data/data_file.h"
#include "data/document_store.h"
#include "data/prepare_state.h"
#include "data/row_reader.h"
#include "data/start_threads.h"
#include "data/unpacked_file.h"
#include "recipe/recipe.h"

namespace trainctl::data {
namespace {

// Where a text may be cut without cutting a word: behind a line, before the line end. `from` is where the
// search begins; npos: nowhere.
size_t LineEnd(absl::string_view text, size_t from) {
  for (size_t at = text.find('\n', from); at != absl::string_view::npos; at = text.find('\n', at + 1)) {
    if (at > 0 && !absl::ascii_isspace(static_cast<unsigned char>(text[at - 1]))) return at;
  }
  return absl::string_view::npos;
}

// The beginning of the last character before `end`.
size_t CharacterBefore(absl::string_view text, size_t end) {
  size_t begin = end - 1;
  while (begin > 0 && end - begin < 4 && (static_cast<uint8_t>(text[begin]) & 0xC0U) == 0x80) --begin;
  return begin;
}

// Adds up what the threads have read.
class Meter {
 public:
  Meter(const CountWordsOptions& options, int64_t total_bytes)
      : options_(options), total_bytes_(total_bytes) {}

  // `seen_bytes` is the number of bytes of this file that the last call read.
  void Saw(int64_t bytes_read, int64_t& seen_bytes) {
    const int64_t more = bytes_read - std::exchange(seen_bytes, bytes_read);
    if (more == 0 || !options_.progress) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    done_bytes_ += more;
    options_.progress(done_bytes_, total_bytes_);
  }

 private:
  const CountWordsOptions& options_;
  const int64_t total_bytes_;
  std::mutex mutex_;
  int64_t done_bytes_ = 0;
};

// Where it is cut depends on the text alone, not on the pieces in which a file comes.
absl::Status CountText(const std::string& path, size_t piece_bytes, tokenizer::WordCounter& words,
                       Meter& meter) {
  const size_t max_bytes = piece_bytes * 64;
  TRAINCTL_ASSIGN_OR_RETURN(UnpackedFile file, UnpackedFile::Open(path));
  int64_t seen_bytes = 0;
  std::string text;
  size_t searched = piece_bytes;
  while (true) {
    TRAINCTL_ASSIGN_OR_RETURN(const absl::Span<const uint8_t> piece, file.Next());
    if (piece.empty()) return words.AddText(text);
    meter.Saw(file.file().bytes_read(), seen_bytes);
    text.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    size_t begin = 0;
    while (true) {
      const absl::string_view left = absl::string_view(text).substr(begin);
      size_t end = LineEnd(left.substr(0, max_bytes), searched);
      if (end == absl::string_view::npos) {
        searched = std::max(piece_bytes, std::min(left.size(), max_bytes));
        if (left.size() < max_bytes) break;
        end = CharacterBefore(left, max_bytes);
      }
      TRAINCTL_RETURN_IF_ERROR(words.AddText(left.substr(0, end)));
      begin += end;
      searched = piece_bytes;
    }
    text.erase(0, begin);
  }
}

absl::Status CountFile(const std::string& path, const CountWordsOptions& options,
                       tokenizer::WordCounter& words, LeftOutLines& left_out, Meter& meter) {
  TRAINCTL_ASSIGN_OR_RETURN(const SourceKind kind, KindOfFile(recipe::DataSource(), path));
  if (kind == SourceKind::kText) return CountText(path, options.piece_bytes, words, meter);
  TRAINCTL_ASSIGN_OR_RETURN(const auto reader,
                            RowReader::Open(path, kind,
                                            {.text_field = options.text_field,
                                             .skip_bad_lines = options.on_bad_line == "skip",
                                             .skip_setting = absl::StrCat(kOnBadLine, " skip")}));
  RowReader::Document document;
  int64_t seen_bytes = 0;
  while (true) {
    TRAINCTL_ASSIGN_OR_RETURN(const bool found, reader->Next(document));
    if (!found) break;
    TRAINCTL_RETURN_IF_ERROR(words.AddText(document.text));
    meter.Saw(reader->bytes_read(), seen_bytes);
  }
  left_out = reader->left_out();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CountedWords> CountWords(const CountWordsOptions& options) {
  int64_t total_bytes = 0;
  for (const std::string& path : options.files) {
    TRAINCTL_ASSIGN_OR_RETURN(const SourceKind kind, KindOfFile(recipe::DataSource(), path));
    if (kind == SourceKind::kIndexed) return UsageError(absl::StrCat(path, " contains tokens, not text"));
    TRAINCTL_ASSIGN_OR_RETURN(const int64_t size_bytes, CheckInputFile(path));
    total_bytes += size_bytes;
  }
  Meter meter(options, total_bytes);
  const size_t num_cores = std::max<size_t>(1, std::thread::hardware_concurrency());
  const size_t wanted = options.num_threads > 0 ? static_cast<size_t>(options.num_threads) : num_cores;
  const size_t num_threads = std::max<size_t>(1, std::min(wanted, options.files.size()));
  std::vector<tokenizer::WordCounter> counters;
  for (size_t i = 0; i < num_threads; ++i) {
    TRAINCTL_ASSIGN_OR_RETURN(tokenizer::WordCounter counter, tokenizer::WordCounter::Create());
    counters.push_back(std::move(counter));
  }
  std::vector<absl::Status> statuses(options.files.size());
  std::vector<LeftOutLines> left_out(options.files.size());
  std::atomic<size_t> next{0};
  std::atomic<bool> has_failed{false};
  const auto work = [&](size_t thread) {
    for (size_t i = next++; i < options.files.size() && !has_failed; i = next++) {
      statuses[i] = CountFile(options.files[i], options, counters[thread], left_out[i], meter);
      if (!statuses[i].ok()) has_failed = true;
    }
  };
  std::vector<std::thread> threads =
      StartThreads(num_threads - 1, [&work](size_t thread) { work(thread + 1); });
  work(0);
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : statuses) TRAINCTL_RETURN_IF_ERROR(status);
  for (size_t i = 1; i < num_threads; ++i) counters[0].AddAll(counters[i]);
  CountedWords counted = {std::move(counters[0]), {}};
  for (const LeftOutLines& lines : left_out) counted.left_out.Add(lines);
  return counted;
}

}  // namespace trainctl::data
