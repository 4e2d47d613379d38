#include "data/parallel_encoder.h"

#include <utility>

#include "base/status.h"
#include "data/document_text.h"
#include "data/start_threads.h"

namespace trainctl::data {
namespace {

constexpr size_t kBatchBytes = size_t{1} << 18;

}  // namespace

ParallelEncoder::ParallelEncoder(const tokenizer::Tokenizer& tokenizer, int32_t end_id, int num_threads,
                                 std::function<absl::Status(absl::Span<const int32_t>)> take)
    : tokenizer_(tokenizer), end_id_(end_id), take_(std::move(take)), filling_(std::make_shared<Batch>()) {
  threads_ = StartThreads(static_cast<size_t>(num_threads), [this](size_t) { Work(); });
  max_batches_ = threads_.size() * 4;
}

ParallelEncoder::~ParallelEncoder() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_closing_ = true;
    to_encode_.clear();
  }
  has_work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ParallelEncoder::Work() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    has_work_.wait(lock, [this] { return is_closing_ || !to_encode_.empty(); });
    if (is_closing_) return;
    const std::shared_ptr<Batch> batch = std::move(to_encode_.front());
    to_encode_.pop_front();
    lock.unlock();
    Encode(*batch);
    lock.lock();
    batch->is_done = true;
    has_result_.notify_one();
  }
}

void ParallelEncoder::Encode(Batch& batch) const {
  for (const std::string& text : batch.texts) {
    batch.status = AppendDocument(tokenizer_, end_id_, /*prompt=*/"", text, &batch.tokens).status();
    if (!batch.status.ok()) return;
    batch.ends.push_back(batch.tokens.size());
  }
  batch.texts = {};
}

absl::Status ParallelEncoder::Add(std::string text) {
  if (threads_.empty()) {
    return EnvironmentError(
        "cannot start a tokenizer thread; raise the limit on processes (ulimit -u) or memory");
  }
  filling_->text_bytes += text.size();
  filling_->texts.push_back(std::move(text));
  if (filling_->text_bytes < kBatchBytes) return absl::OkStatus();
  Submit();
  while (under_way_.size() > max_batches_ ||
         (under_way_.size() > 1 && bytes_under_way_ > kMaxBytesUnderWay)) {
    TRAINCTL_RETURN_IF_ERROR(TakeFront());
  }
  return absl::OkStatus();
}

absl::Status ParallelEncoder::Finish() {
  Submit();
  while (!under_way_.empty()) TRAINCTL_RETURN_IF_ERROR(TakeFront());
  return absl::OkStatus();
}

void ParallelEncoder::Submit() {
  if (filling_->texts.empty()) return;
  under_way_.push_back(filling_);
  bytes_under_way_ += filling_->text_bytes;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    to_encode_.push_back(std::move(filling_));
  }
  has_work_.notify_one();
  filling_ = std::make_shared<Batch>();
}

absl::Status ParallelEncoder::TakeFront() {
  const std::shared_ptr<Batch> batch = std::move(under_way_.front());
  under_way_.pop_front();
  bytes_under_way_ -= batch->text_bytes;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    has_result_.wait(lock, [&batch] { return batch->is_done; });
  }
  size_t begin = 0;
  for (const size_t end : batch->ends) {
    TRAINCTL_RETURN_IF_ERROR(take_(absl::MakeConstSpan(batch->tokens).subspan(begin, end - begin)));
    begin = end;
  }
  return batch->status;
}

}  // namespace trainctl::data
