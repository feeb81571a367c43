// A pool that runs one function on every thread, a barrier for use inside it, and work shared by stealing.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

namespace paceline {

// A counter that threads wait on: they spin, then sleep. On two shared cores an endless spin would stand in
// the way of the very thread that is waited for.
class Gate {
 public:
  std::uint32_t value() const { return value_.load(std::memory_order_acquire); }
  void advance();                                 // adds one and wakes all who sleep
  void wait_while(std::uint32_t old, int spins);  // returns when the value is not `old` any more

 private:
  std::atomic<std::uint32_t> value_{0};
  std::atomic<std::uint32_t> sleepers_{0};
};

class Barrier {
 public:
  explicit Barrier(int threads) : threads_(static_cast<std::uint32_t>(threads)) {}
  void expect(int threads) { threads_ = static_cast<std::uint32_t>(threads); }  // while nobody waits
  void wait();

 private:
  std::uint32_t threads_;
  alignas(64) std::atomic<std::uint32_t> arrived_{0};
  alignas(64) Gate phase_;
};

// Items 0 … n-1 of one phase, split evenly; a thread that runs out takes from the others. Order of items has no
// influence on results, only on time.
class SharedWork {
 public:
  explicit SharedWork(int threads) : threads_(threads), next_(new Counter[threads]) {}
  void reset(int threads) {  // at most as many as at construction
    threads_ = threads;
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

// Seconds of processor time the calling thread has used; where the system does not tell, seconds that have passed.
double thread_seconds();

// Decides whether short passes run on all threads or on one. Where other programs want the processors too, threads that
// meet at 150 barriers wait for each other's time slices: one thread is then twice as fast as two and never late. A pass
// is judged by the share of its time in which the calling thread ran; results do not depend on the decision.
class Crowding {
 public:
  bool alone() const { return alone_; }
  void judge(double seconds, double running_seconds);

 private:
  bool alone_ = false;
  int strikes_ = 0, clean_ = 0, passes_ = 0, patience_ = kShortest;
  double seconds_ = 0.0, running_ = 0.0;
  static constexpr int kShortest = 16, kLongest = 1024;  // passes alone before all threads are tried again
};

class ThreadPool {
 public:
  explicit ThreadPool(int threads);
  ~ThreadPool();
  int size() const { return threads_; }
  Barrier& barrier() { return barrier_; }
  // Runs function(thread) on all threads, or on the caller alone, who is thread 0; returns when all are done.
  void run(const std::function<void(int)>& function);
  void run_alone(const std::function<void(int)>& function);

 private:
  void work(int thread);
  int threads_;
  Barrier barrier_;
  const std::function<void(int)>* function_ = nullptr;
  bool stop_ = false;
  alignas(64) Gate start_;
  std::vector<std::thread> workers_;
};

}  // namespace paceline
