// Tokenizes documents on several threads and delivers them in the order in which they were added. Not
// thread-safe; all calls must come from the same thread.
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

  // `take` receives the tokens of each document as produced by AppendDocument with `end_id`, and no tokens
  // for a text without any. It runs on the thread that calls Add. `tokenizer` must outlive this object. Uses
  // fewer than `num_threads` threads if the system does not allow that many.
  ParallelEncoder(const tokenizer::Tokenizer& tokenizer, int32_t end_id, int num_threads,
                  std::function<absl::Status(absl::Span<const int32_t>)> take);
  ParallelEncoder(const ParallelEncoder&) = delete;
  ParallelEncoder& operator=(const ParallelEncoder&) = delete;
  // Joins the threads and drops documents that have not been taken.
  ~ParallelEncoder();

  // Adds a text. Blocks while more than kMaxBytesUnderWay bytes of text, or four batches of 256 KiB per
  // thread, are waiting to be taken; a text larger than that is processed by itself.
  //
  // Returns the errors of `take` and of Tokenizer::Encode for the first document that has not been taken yet,
  // which may be an earlier one. Returns EnvironmentError if no thread could be started. Do not add documents
  // after an error.
  absl::Status Add(std::string text);
  // Waits until all documents have been taken.
  absl::Status Finish();

 private:
  struct Batch {
    std::vector<std::string> texts;
    size_t text_bytes = 0;
    std::vector<int32_t> tokens;
    std::vector<size_t> ends;  // end of each text in `tokens`
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
  std::deque<std::shared_ptr<Batch>> under_way_;  // in order; used only by the thread that calls Add
  size_t bytes_under_way_ = 0;                    // size of their texts

  std::mutex mutex_;
  std::condition_variable has_work_;
  std::condition_variable has_result_;
  std::deque<std::shared_ptr<Batch>> to_encode_;
  bool is_closing_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace trainctl::data
