// Recycles Scratch objects, so their caches survive from one encoding call to the next. Thread-safe.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "tokenizer/model.h"

namespace trainctl::tokenizer {

class ScratchPool {
 public:
  // Borrows a scratch from the pool and returns it on destruction.
  class Lease {
   public:
    explicit Lease(ScratchPool& pool) : pool_(pool), scratch_(pool.Take()) {}
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    ~Lease() { pool_.Return(std::move(scratch_)); }
    Scratch& operator*() const { return *scratch_; }

   private:
    ScratchPool& pool_;
    std::unique_ptr<Scratch> scratch_;
  };

 private:
  std::unique_ptr<Scratch> Take() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!waiting_.empty()) {
        std::unique_ptr<Scratch> scratch = std::move(waiting_.back());
        waiting_.pop_back();
        return scratch;
      }
    }
    return std::make_unique<Scratch>();
  }
  void Return(std::unique_ptr<Scratch> scratch) {
    const std::lock_guard<std::mutex> lock(mutex_);
    waiting_.push_back(std::move(scratch));
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<Scratch>> waiting_;
};

}  // namespace trainctl::tokenizer
