#include "threads.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace paceline {
namespace {

// A barrier whose threads all run is over in a microsecond or two; between two passes Python needs a few hundred. Both
// waits are far shorter than the time slice of a thread that does not run.
constexpr int kBarrierSpins = 1500;
constexpr int kIdleSpins = 12000;

inline void relax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

void wait_while_equal(const std::atomic<std::uint32_t>& word, std::uint32_t old, int spins) {
  for (int i = 0; i < spins; ++i) {
    if (word.load(std::memory_order_acquire) != old) return;
    relax();
  }
  while (word.load(std::memory_order_acquire) == old) word.wait(old, std::memory_order_acquire);
}

void Barrier::wait() {
  if (threads_ == 1) return;
  const std::uint32_t phase = phase_.load(std::memory_order_acquire);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads_) {
    arrived_.store(0, std::memory_order_relaxed);
    phase_.store(phase + 1, std::memory_order_release);
    phase_.notify_all();
  } else {
    wait_while_equal(phase_, phase, kBarrierSpins);
  }
}

ThreadPool::ThreadPool(int threads) : threads_(threads), barrier_(threads) {
  for (int t = 1; t < threads; ++t) workers_.emplace_back([this, t] { work(t); });
}

ThreadPool::~ThreadPool() {
  stop_ = true;
  start_.fetch_add(1, std::memory_order_release);
  start_.notify_all();
  for (std::thread& w : workers_) w.join();
}

void ThreadPool::work(int thread) {
  std::uint32_t seen = 0;
  for (;;) {
    wait_while_equal(start_, seen, kIdleSpins);
    seen = start_.load(std::memory_order_acquire);
    if (stop_) return;
    (*function_)(thread);
    barrier_.wait();
  }
}

void ThreadPool::run(const std::function<void(int)>& function) {
  function_ = &function;
  start_.fetch_add(1, std::memory_order_release);
  start_.notify_all();
  function(0);
  barrier_.wait();
}

}  // namespace paceline
