// While this lives, no thread can be started: each would have a stack that no address space holds.
#pragma once

#include <gtest/gtest.h>
#include <pthread.h>

#include <cstddef>

namespace trainctl::data {

class NoMoreThreads {
 public:
  NoMoreThreads() {
    pthread_attr_t impossible;
    EXPECT_EQ(pthread_getattr_default_np(&usual_), 0);
    EXPECT_EQ(pthread_attr_init(&impossible), 0);
    EXPECT_EQ(pthread_attr_setstacksize(&impossible, size_t{1} << 47), 0);
    EXPECT_EQ(pthread_setattr_default_np(&impossible), 0);
    pthread_attr_destroy(&impossible);
  }
  NoMoreThreads(const NoMoreThreads&) = delete;
  NoMoreThreads& operator=(const NoMoreThreads&) = delete;
  ~NoMoreThreads() {
    EXPECT_EQ(pthread_setattr_default_np(&usual_), 0);
    pthread_attr_destroy(&usual_);
  }

 private:
  pthread_attr_t usual_;
};

}  // namespace trainctl::data
