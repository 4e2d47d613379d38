// Documents tokenized by several threads, handed on in the order in which they came. Not thread safe: one
// thread adds.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "tokenizer/tokenizer.h"

namespace trainctl::data {

class ParallelEncoder {
 public:
  static constexpr size_t kMaxBytesUnderWay = size_t{1} << 26;

  // `take` gets each document's tokens, on the thread that adds, as AppendDocument makes them with `end_id`;
  // none for a text without tokens. `tokenizer` must live as long as this. Goes on with fewer threads where
  // the system gives fewer.
  ParallelEncoder(const tokenizer::Tokenizer& tokenizer, int32_t end_id, int num_threads,
                  std::function<absl::Status(absl::Span<const int32_t>)> take);
  ParallelEncoder(const ParallelEncoder&) = delete;
  ParallelEncoder& operator=(const ParallelEncoder&) = delete;
  // Joins the threads; what was not taken is dropped.
  ~ParallelEncoder();

  // Blocks while texts of more than kMaxBytesUnderWay bytes, or four batches of 256 KiB a thread, wait for
  // their tokens to be taken; a text that is longer goes alone. Errors are those of `take` and of
  // Tokenizer::Encode, for this document or an earlier one: that behind the last one taken; EnvironmentError
  // where no thread could be started. Nothing may be added after an error.
  absl::Status Add(std::string text);
  // Until all is taken.
  absl::Status Finish();

 private:
  struct Batch {
    std::vector<std::string> texts;
    size_t text_bytes = 0;
    std::vector<int32_t> tokens;
    std::vector<size_t> ends;  // in tokens, of each text
    absl::Status status;
    bool is_done = false;
  };

  void Work();
  void Encode(Batch& batch) const;
  void Submit();
  absl::Status TakeFront();

  const tokenizer::Tokenizer& tokenizer_;
  const int32_t end_id_;
  size_t max_batches_ = 0;
  std::function<absl::Status(absl::Span<const int32_t>)> take_;
  std::shared_ptr<Batch> filling_;
  std::deque<std::shared_ptr<Batch>> under_way_;  // in their order; of the adding thread alone
  size_t bytes_under_way_ = 0;                    // of their texts

  std::mutex mutex_;
  std::condition_variable has_work_;
  std::condition_variable has_result_;
  std::deque<std::shared_ptr<Batch>> to_encode_;
  bool is_closing_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace trainctl::data
