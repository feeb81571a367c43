// A pool that runs one function on every thread, a barrier for use inside it, and work shared by stealing.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

namespace paceline {

// Waits for `word` to leave `old`: spins, then sleeps. On two shared cores an endless spin would stand in
// the way of the very thread that is waited for.
void wait_while_equal(const std::atomic<std::uint32_t>& word, std::uint32_t old, int spins);

class Barrier {
 public:
  explicit Barrier(int threads) : threads_(static_cast<std::uint32_t>(threads)) {}
  void wait();

 private:
  const std::uint32_t threads_;
  alignas(64) std::atomic<std::uint32_t> arrived_{0};
  alignas(64) std::atomic<std::uint32_t> phase_{0};
};

// Items 0 … n-1 of one phase, split evenly; a thread that runs out takes from the others. Order of items has no
// influence on results, only on time.
class SharedWork {
 public:
  explicit SharedWork(int threads) : threads_(threads), next_(new Counter[threads]) {}
  void reset() {
    for (int t = 0; t < threads_; ++t) next_[t].value.store(0, std::memory_order_relaxed);
  }
  template <typename Function>
  void run(int thread, int items, Function&& function) {
    for (int k = 0; k < threads_; ++k) {
      const int victim = (thread + k) % threads_;
      const int begin = static_cast<int>(static_cast<std::int64_t>(items) * victim / threads_);
      const int end = static_cast<int>(static_cast<std::int64_t>(items) * (victim + 1) / threads_);
      for (;;) {
        if (next_[victim].value.load(std::memory_order_relaxed) >= end - begin) break;
        const int i = begin + next_[victim].value.fetch_add(1, std::memory_order_relaxed);
        if (i >= end) break;
        function(i);
      }
    }
  }

 private:
  struct alignas(64) Counter {
    std::atomic<int> value{0};
  };
  int threads_;
  std::unique_ptr<Counter[]> next_;
};

class ThreadPool {
 public:
  explicit ThreadPool(int threads);
  ~ThreadPool();
  int size() const { return threads_; }
  Barrier& barrier() { return barrier_; }
  // Runs function(thread) on all threads, the caller being thread 0; returns when all are done.
  void run(const std::function<void(int)>& function);

 private:
  void work(int thread);
  int threads_;
  Barrier barrier_;
  const std::function<void(int)>* function_ = nullptr;
  bool stop_ = false;
  alignas(64) std::atomic<std::uint32_t> start_{0};
  std::vector<std::thread> workers_;
};

}  // namespace paceline
